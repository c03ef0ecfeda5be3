"""What a streaming request asks for: `q` from `s` to `e`, every `step`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from starlette.requests import Request

from lakerunner.model.errors import BadInput
from lakerunner.model.time import parse_duration_s
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.lake.cursor import Cursor
from lakerunner.serve.params import body_of, parse_time_ms, wants_fresh
from lakerunner.serve.service import Question

#: Steps to choose from where none is given, in seconds: the first that gives no more points than a screen has room for.
_STEPS_S = (10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
_POINTS = 360
_RELATIVE = re.compile(r"(now|e)(?:-([0-9a-z.]+))?")
_FLAGS = frozenset({"nocache", "partial", "explain", "summary", "reverse"})
_KNOWN = frozenset({"q", "s", "e", "step", "limit", "lookback", "timeout", "fields"}) | _FLAGS


@dataclass(frozen=True, slots=True)
class StreamRequest:
    question: Question
    #: Results after which the stream ends; 0 means all.
    limit: int
    timeout_s: float | None
    explain: bool
    summary: bool
    cursor: Cursor | None


async def stream_request(request: Request, language: str, lookback_ms: int, now_ms: int) -> StreamRequest:
    """Read and check it. A client that comes back with the id of its last event goes on with the same times."""
    fields = await _fields(request)
    last_id = request.headers.get("last-event-id", "").strip()
    cursor = Cursor.parse(last_id) if last_id else None
    text = fields.get("q")
    if not isinstance(text, str) or not text.strip():
        raise BadInput("cannot read this request: `q`, the query, is missing", where="q")
    end_ms = _time_ms("e", fields.get("e", "now"), now_ms, now_ms)
    start_ms = _time_ms("s", fields.get("s", "e-1h"), end_ms, now_ms)
    step_ms = (
        _span_ms("step", fields["step"])
        if fields.get("step") not in (None, "")
        else _fitting_step_ms(end_ms - start_ms)
    )
    if fields.get("lookback"):
        lookback_ms = _span_ms("lookback", fields["lookback"])
    times = QueryTimes(start_ms, end_ms, step_ms)
    if cursor is not None:
        times = QueryTimes(cursor.start_ms, cursor.end_ms, cursor.step_ms)
    if times.end_ms < times.start_ms:
        raise BadInput("cannot run the query: `e` is before `s`", where="e")
    fresh, partial = _flag(fields, "nocache") or wants_fresh(request), _flag(fields, "partial", default=True)
    return StreamRequest(
        Question(language, text, times, lookback_ms, fresh, partial),
        _count(fields),
        _span_ms("timeout", fields["timeout"]) / 1000 if fields.get("timeout") else None,
        _flag(fields, "explain"),
        _flag(fields, "summary", default=True),
        cursor,
    )


async def _fields(request: Request) -> Mapping[str, object]:
    fields: object = dict(request.query_params)
    if request.method == "POST":
        try:
            fields = orjson.loads(await body_of(request))
        except orjson.JSONDecodeError as reason:
            raise BadInput(f"cannot read the body as JSON: {reason}", hint='send {"q": "up", "s": "e-1h"}') from None
    if not isinstance(fields, dict):
        raise BadInput("cannot read the body: it is no JSON object", hint='send {"q": "up", "s": "e-1h"}')
    if unknown := sorted(set(fields) - _KNOWN):
        raise BadInput(
            f"cannot read this request: it has no field {unknown[0]!r}", hint=f"it has {', '.join(sorted(_KNOWN))}"
        )
    if fields.get("reverse") in (True, "true", "1") or fields.get("fields"):
        raise BadInput("cannot stream metrics in reverse or by fields", hint="leave `reverse` and `fields` out")
    return fields


def _time_ms(name: str, value: object, end_ms: int, now_ms: int) -> int:
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


def _span_ms(name: str, value: object) -> int:
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


def _fitting_step_ms(range_ms: int) -> int:
    return next((step_s for step_s in _STEPS_S if range_ms <= step_s * 1000 * _POINTS), _STEPS_S[-1]) * 1000


def _count(fields: Mapping[str, object]) -> int:
    value = fields.get("limit") or 0
    try:
        count = int(value) if isinstance(value, int | str) else -1
    except ValueError:
        count = -1
    if count < 0:
        raise BadInput(f"cannot read the limit {str(value)[:50]!r}", hint="give a number from 0 on", where="limit")
    return count


def _flag(fields: Mapping[str, object], name: str, *, default: bool = False) -> bool:
    value = fields.get(name, default)
    return value.lower() in ("1", "true", "yes") if isinstance(value, str) else bool(value)
