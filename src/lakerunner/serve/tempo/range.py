"""The optional `start` and `end` of requests that choose segments: seconds, nanoseconds or RFC 3339."""

from __future__ import annotations

import re

from lakerunner.model.errors import BadInput
from lakerunner.model.time import MAX_TIME_NS, NS_PER_MS, NS_PER_S, TimeRange, parse_time_ms
from lakerunner.serve.params import Params

_NUMBER = re.compile(r"(\d{1,19})(?:\.(\d{1,9})\d*)?")
#: Whole numbers from here on are nanoseconds: as seconds they would lie beyond the year 30000.
_LEAST_NS = 10**12


def read_range(params: Params) -> TimeRange:
    """The range of a request; all time if it has none."""
    start_ns, end_ns = _time_ns(params, "start", 0), _time_ns(params, "end", MAX_TIME_NS)
    if start_ns >= end_ns:
        raise BadInput(f"cannot read this request: start must be before end, but start={start_ns} and end={end_ns}")
    return TimeRange(min(start_ns, MAX_TIME_NS - 1), min(end_ns, MAX_TIME_NS))


def _time_ns(params: Params, name: str, default_ns: int) -> int:
    text = params.text(name).strip()
    if not text or text == "0":
        return default_ns
    found = _NUMBER.fullmatch(text)
    if found is None:
        return parse_time_ms(name, text) * NS_PER_MS
    whole, fraction = int(found[1]), found[2]
    if fraction is None and whole >= _LEAST_NS:
        return whole
    return whole * NS_PER_S + int((fraction or "").ljust(9, "0"))
