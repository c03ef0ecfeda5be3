"""Answers and errors in the format that Tempo's clients parse: errors are plain text."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.serve.dialect import Dialect, DialectRoute, Handler
from lakerunner.serve.plain_errors import PlainErrors

TEMPO = Dialect("tempo", PlainErrors(over_limit=422).failure)


def tempo_route(
    path: str, handler: Handler, methods: Sequence[str] = ("GET",), *, light: bool = False, streams: bool = False
) -> DialectRoute:
    return DialectRoute(path, handler, methods, TEMPO, light=light, streams=streams)
