"""The compiled kernels of a process that answers queries over HTTP."""

from __future__ import annotations

from lakerunner.query.rewriting import rewriter
from lakerunner.query.warm import query_kernels
from lakerunner.runtime.kernels import Share
from lakerunner.serve.rendering.warm import warm_rendering


def api_kernels() -> tuple[Share, ...]:
    # Whoever looks for rules that answer a query is no kernel, but loaded as late and as slowly.
    return (warm_rendering, *query_kernels(), rewriter)
