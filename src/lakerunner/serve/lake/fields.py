"""Fields of a request to our own API: times, durations, counts and flags."""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson
from starlette.requests import Request

from lakerunner.model.errors import BadInput
from lakerunner.model.time import parse_duration_s
from lakerunner.serve.params import body_of, parse_time_ms

_RELATIVE = re.compile(r"(now|e)(?:-([0-9a-z.]+))?")


async def read_fields(request: Request, known: frozenset[str], example: str) -> Mapping[str, object]:
    """The fields of the address or, by POST, of a JSON object."""
    fields: object = dict(request.query_params)
    if request.method == "POST":
        try:
            fields = orjson.loads(await body_of(request))
        except orjson.JSONDecodeError as reason:
            raise BadInput(f"cannot read the body as JSON: {reason}", hint=f"send {example}") from None
    if not isinstance(fields, dict):
        raise BadInput("cannot read the body: it is no JSON object", hint=f"send {example}")
    if unknown := sorted(set(fields) - known):
        raise BadInput(
            f"cannot read this request: it has no field {unknown[0]!r}", hint=f"it has {', '.join(sorted(known))}"
        )
    return fields


def time_field_ms(name: str, value: object, end_ms: int, now_ms: int) -> int:
    """`now`, `now-1h`, `e-1h`, milliseconds, or an RFC 3339 time."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_time_ms(name, str(value / 1000))
    if not isinstance(value, str):
        raise BadInput(f"cannot read {name!r} as a time: {value!r}", where=name)
    if found := _RELATIVE.fullmatch(value.strip()):
        base_ms = now_ms if found[1] == "now" else end_ms
        return base_ms - (round(parse_duration_s(found[2]) * 1000) if found[2] else 0)
    if re.fullmatch(r"-?\d{1,17}", value.strip()):
        return parse_time_ms(name, str(int(value) / 1000))
    return parse_time_ms(name, value.strip())


def span_field_ms(name: str, value: object) -> int:
    """A duration as `30s`, or a number of milliseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        span_ms = round(value) if abs(value) < 1e15 else 0
    elif isinstance(value, str) and re.fullmatch(r"\d{1,15}", value):
        span_ms = int(value)
    elif isinstance(value, str):
        span_ms = round(parse_duration_s(value) * 1000)
    else:
        span_ms = 0
    if span_ms <= 0:
        raise BadInput(
            f"cannot read {name!r} as a duration: {str(value)[:50]!r}", hint="write 30s, or milliseconds", where=name
        )
    return span_ms


def count_field(fields: Mapping[str, object]) -> int:
    value = fields.get("limit") or 0
    try:
        count = int(value) if isinstance(value, int | str) else -1
    except ValueError:
        count = -1
    if count < 0:
        raise BadInput(f"cannot read the limit {str(value)[:50]!r}", hint="give a number from 0 on", where="limit")
    return count


def flag_field(fields: Mapping[str, object], name: str, *, default: bool = False) -> bool:
    value = fields.get(name, default)
    return value.lower() in ("1", "true", "yes") if isinstance(value, str) else bool(value)
