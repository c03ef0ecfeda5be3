"""Parses the fields of requests to Lakerunner's own API: times, durations, counts and flags."""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson
from starlette.requests import Request

from lakerunner.model.errors import BadInput
from lakerunner.model.time import parse_duration_s, parse_time_ms
from lakerunner.serve.params import body_of

_RELATIVE = re.compile(r"(now|e)(?:-([0-9a-z.]+))?")


async def read_fields(request: Request, known: frozenset[str], example: str) -> Mapping[str, object]:
    """Read the fields from the query string or, for POST, from a JSON object. Unknown fields are refused."""
    fields: object = dict(request.query_params)
    if request.method == "POST":
        try:
            fields = orjson.loads(await body_of(request))
        except orjson.JSONDecodeError as reason:
            raise BadInput(f"cannot read the body as JSON: {reason}", hint=f"send {example}") from None
    if not isinstance(fields, dict):
        raise BadInput("cannot read the body: it is not a JSON object", hint=f"send {example}")
    if unknown := sorted(set(fields) - known):
        raise BadInput(
            f"cannot read this request: there is no field {unknown[0]!r}",
            hint=f"the fields are {', '.join(sorted(known))}",
        )
    return fields


def text_field(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"cannot read this request: `{name}`, the query, is missing", where=name)
    return value


def time_field_ms(name: str, value: object, end_ms: int, now_ms: int) -> int:
    """Parse `now`, `now-1h`, `e-1h` (an hour before the end), milliseconds, or an RFC 3339 time."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse_time_ms(name, str(value / 1000))
    if not isinstance(value, str):
        raise BadInput(f"cannot read {name!r} as a time: {value!r}", where=name)
    if relative := _RELATIVE.fullmatch(value.strip()):
        base_ms = now_ms if relative[1] == "now" else end_ms
        return base_ms - (round(parse_duration_s(relative[2]) * 1000) if relative[2] else 0)
    if re.fullmatch(r"-?\d{1,17}", value.strip()):
        return parse_time_ms(name, str(int(value) / 1000))
    return parse_time_ms(name, value.strip())


def span_field_ms(name: str, value: object) -> int:
    """Parse a duration like `30s`, or a number of milliseconds."""
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
            f"cannot read {name!r} as a duration: {str(value)[:50]!r}",
            hint="give milliseconds or a duration like 30s",
            where=name,
        )
    return span_ms


def count_field(fields: Mapping[str, object]) -> int:
    value = fields.get("limit") or 0
    try:
        count = int(value) if isinstance(value, int | str) else -1
    except ValueError:
        count = -1
    if count < 0:
        raise BadInput(f"cannot read the limit {str(value)[:50]!r}", hint="give a non-negative integer", where="limit")
    return count


def flag_field(fields: Mapping[str, object], name: str, *, default: bool = False) -> bool:
    value = fields.get(name, default)
    return value.lower() in ("1", "true", "yes") if isinstance(value, str) else bool(value)


def names_field(fields: Mapping[str, object], name: str = "fields") -> tuple[str, ...] | None:
    """Parse a list of names, or names with commas between them; None if there are none."""
    value = fields.get(name) or None
    if isinstance(value, str):
        value = value.split(",")
    if value is None:
        return None
    if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise BadInput(f"cannot read this request: `{name}` is no list of names", where=name)
    return tuple(value)
