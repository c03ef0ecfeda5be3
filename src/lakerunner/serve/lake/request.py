"""Parses a streaming request: query `q` from `s` to `e`, one value per `step`."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from lakerunner.model.errors import BadInput
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.lake.cursor import Cursor
from lakerunner.serve.lake.fields import count_field, flag_field, read_fields, span_field_ms, text_field, time_field_ms
from lakerunner.serve.params import parse_tier_s, wants_fresh
from lakerunner.serve.service import Question

#: Default steps, in seconds: the first that gives at most `_POINTS` points, about as many as a screen shows.
_STEPS_S = (10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
_POINTS = 360
_FLAGS = frozenset({"nocache", "partial", "explain", "summary", "reverse", "rewrite"})
_KNOWN = frozenset({"q", "s", "e", "step", "limit", "lookback", "timeout", "fields", "max_tier"}) | _FLAGS


@dataclass(frozen=True, slots=True)
class StreamRequest:
    question: Question
    #: Maximum number of results; 0 means all.
    limit: int
    timeout_s: float | None
    explain: bool
    summary: bool
    cursor: Cursor | None


async def read_stream_request(request: Request, language: str, lookback_ms: int, now_ms: int) -> StreamRequest:
    """Read and check a request. A client that reconnects with its last event id resumes with the same times."""
    fields = await read_fields(request, _KNOWN, example='{"q": "up", "s": "e-1h"}')
    if fields.get("reverse") in (True, "true", "1") or fields.get("fields"):
        raise BadInput(
            "cannot stream metrics: `reverse` and `fields` are not supported", hint="leave `reverse` and `fields` out"
        )
    last_id = request.headers.get("last-event-id", "").strip()
    cursor = Cursor.parse(last_id) if last_id else None
    text = text_field(fields, "q")
    end_ms = time_field_ms("e", fields.get("e", "now"), now_ms, now_ms)
    start_ms = time_field_ms("s", fields.get("s", "e-1h"), end_ms, now_ms)
    if fields.get("step") in (None, ""):
        step_ms = default_step_ms(end_ms - start_ms)
        # Aligned, so that neighbouring requests share their points, and tiers of metrics can be read.
        start_ms -= start_ms % step_ms if start_ms <= end_ms else 0
    else:
        step_ms = span_field_ms("step", fields["step"])
    if fields.get("lookback"):
        lookback_ms = span_field_ms("lookback", fields["lookback"])
    times = QueryTimes(start_ms, end_ms, step_ms)
    if cursor is not None:
        times = QueryTimes(cursor.start_ms, cursor.end_ms, cursor.step_ms)
    if times.end_ms < times.start_ms:
        raise BadInput("cannot run the query: `e` is before `s`", where="e")
    fresh, partial = flag_field(fields, "nocache") or wants_fresh(request), flag_field(fields, "partial", default=True)
    asked = fields.get("max_tier")
    max_tier_s = None if asked in (None, "") else parse_tier_s("max_tier", str(asked))
    return StreamRequest(
        Question(
            language,
            text,
            times,
            lookback_ms,
            fresh,
            partial,
            max_tier_s,
            None if fields.get("approximate") in (None, "") else flag_field(fields, "approximate"),
            rewrite=flag_field(fields, "rewrite", default=True),
        ),
        count_field(fields),
        span_field_ms("timeout", fields["timeout"]) / 1000 if fields.get("timeout") else None,
        flag_field(fields, "explain"),
        flag_field(fields, "summary", default=True),
        cursor,
    )


def default_step_ms(range_ms: int) -> int:
    return next((step_s for step_s in _STEPS_S if range_ms <= step_s * 1000 * _POINTS), _STEPS_S[-1]) * 1000
