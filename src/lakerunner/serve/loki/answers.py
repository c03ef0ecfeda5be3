"""Answers and errors in the format that Loki's clients parse: errors are plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from lakerunner.serve.dialect import Dialect, DialectRoute, Handler
from lakerunner.serve.plain_errors import PlainErrors, document
from lakerunner.serve.rendering.json import json_text

LOKI = Dialect("loki", PlainErrors(over_limit=400).failure)


def success(
    request: Request,
    data: bytes | Sequence[bytes],
    warnings: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A successful answer whose data is JSON text, whole or in pieces."""
    pieces = (data,) if isinstance(data, bytes) else data
    warned = b',"warnings":' + json_text(list(warnings)) if warnings else b""
    return document(request, b"".join((b'{"status":"success","data":', *pieces, warned, b"}")), headers)


def loki_route(
    path: str, handler: Handler, methods: Sequence[str] = ("GET", "POST"), *, light: bool = False
) -> DialectRoute:
    return DialectRoute(path, handler, methods, LOKI, light=light)
