"""Warming compiles what queries need, whatever it finds."""

from __future__ import annotations

from lakerunner.query.logql.eval import kernels
from lakerunner.query.logql.eval.warm import warm


def test_every_kernel_of_entries_is_warm() -> None:
    warm()
    public = {
        name: kernel for name, kernel in vars(kernels).items() if hasattr(kernel, "signatures") and name[0] != "_"
    }
    assert len(public) > 5
    assert [name for name, kernel in public.items() if not kernel.signatures] == []
