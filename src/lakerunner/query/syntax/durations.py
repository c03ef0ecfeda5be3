"""Duration literals with Prometheus' units: `1h30m`."""

from __future__ import annotations

import re

from lakerunner.model.errors import BadInput

_UNITS_MS = (
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
)
_PIECE = re.compile(r"(\d+)(ms|[ywdhms])")
_LITERAL = re.compile("(?=.)" + "".join(rf"(?:\d+{unit}(?![a-z]))?" for unit, _ in _UNITS_MS), re.ASCII)
#: Prometheus keeps durations as int64 nanoseconds.
MAX_MS = (1 << 63) // 1_000_000
_MOST_DIGITS = len(str(MAX_MS))


def is_duration(text: str) -> bool:
    """Whether the text is a duration literal: each unit at most once, from the largest to the smallest.

    >>> is_duration("1h30m"), is_duration("30m1h"), is_duration("1.5h")
    (True, False, False)
    """
    return _LITERAL.fullmatch(text) is not None


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration literal.

    >>> parse_duration_ms("1h30m"), parse_duration_ms("10s53ms")
    (5400000, 10053)
    """
    units = dict(_UNITS_MS)
    pieces = _PIECE.findall(text)
    # Python refuses to read thousands of digits.
    too_long = any(len(number.lstrip("0")) > _MOST_DIGITS for number, _ in pieces)
    total = 0 if too_long else sum(int(number) * units[unit] for number, unit in pieces)
    if too_long or total > MAX_MS:
        raise BadInput(f"cannot read {text!r}: duration out of range")
    return total


def format_duration_ms(duration_ms: int) -> str:
    """The shortest literal of a duration in milliseconds.

    >>> format_duration_ms(5_400_000), format_duration_ms(0)
    ('1h30m', '0s')
    """
    if duration_ms == 0:
        return "0s"
    out, rest = [], duration_ms
    for unit, size in _UNITS_MS:
        # Years and weeks only without a remainder: 8d reads better than 1w1d.
        if unit in ("y", "w") and rest % size:
            continue
        count, rest = divmod(rest, size)
        if count:
            out.append(f"{count}{unit}")
    return "".join(out)
