"""JSON answers: UUIDs and times included, made by orjson."""

from __future__ import annotations

import orjson
from starlette.responses import Response


def json_response(document: object, status_code: int = 200) -> Response:
    return Response(orjson.dumps(document), status_code=status_code, media_type="application/json")
