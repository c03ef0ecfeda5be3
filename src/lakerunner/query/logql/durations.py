"""Durations in LogQL: Prometheus' literals in ranges, and Go's beside them everywhere else. Nanoseconds."""

from __future__ import annotations

import re

from lakerunner.model.errors import BadInput
from lakerunner.query.syntax.durations import is_duration, parse_duration_ms

_NS_PER_MS = 1_000_000
_GO_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter
    "ms": _NS_PER_MS,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_GO_PIECE = re.compile(r"(\d*)(?:\.(\d*))?([^\d.]+)", re.ASCII)
#: Digits of a fraction beyond these are less than a nanosecond of the largest unit.
_FRACTION_DIGITS = 18
_MOST_NS = (1 << 63) - 1
#: Python refuses to read thousands of digits.
_MOST_DIGITS = 100


def parse_range_ns(text: str) -> int:
    """The duration of a range (`[5m]`), which has Prometheus' units and no fractions.

    >>> parse_range_ns("1h30m"), parse_range_ns("0")
    (5400000000000, 0)
    """
    if text == "0":
        return 0
    if not is_duration(text):
        raise BadInput(f"cannot read {text!r} as a duration", hint="write it like 500ms, 30s, 5m, 1h30m or 7d")
    return parse_duration_ms(text) * _NS_PER_MS


def parse_duration_ns(text: str) -> int:
    """A duration of an offset, a label filter or a label's value.

    >>> parse_duration_ns("1d"), parse_duration_ns("1.5h"), parse_duration_ns("-250us")
    (86400000000000, 5400000000000, -250000)
    """
    if is_duration(text):
        return parse_duration_ms(text) * _NS_PER_MS
    return parse_go_duration_ns(text)


def parse_go_duration_ns(text: str) -> int:
    """A duration as Go's `time` package reads it.

    >>> parse_go_duration_ns("1h0.5m"), parse_go_duration_ns("-0")
    (3630000000000, 0)
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total = at = 0
    # Piece by piece: one expression for all of them would take exponential time.
    while at < len(rest) or not rest:
        piece = _GO_PIECE.match(rest, at)
        if piece is None:
            raise BadInput(f"cannot read {text!r} as a duration", hint="write it like 500ms, 1.5s, 5m or 1h30m")
        total += _piece_ns(text, piece[1], piece[2] or "", piece[3])
        at = piece.end()
    negative = text.startswith("-")
    if total > _MOST_NS + negative:
        raise BadInput(f"cannot read {text!r}: duration out of range")
    return -total if negative else total


def _piece_ns(text: str, whole: str, fraction: str, unit: str) -> int:
    size = _GO_UNITS_NS.get(unit)
    if size is None or not (whole or fraction):
        raise BadInput(f"cannot read {text!r} as a duration: unknown unit {unit!r}")
    if len(whole) > _MOST_DIGITS:
        raise BadInput(f"cannot read {text[:_MOST_DIGITS]!r}…: duration out of range")
    digits = fraction[:_FRACTION_DIGITS]
    return int(whole or 0) * size + int(float(int(digits or 0)) * (float(size) / 10 ** len(digits)))


def format_go_duration(duration_ns: int) -> str:
    """A duration as Go's `time` package prints it.

    >>> format_go_duration(90_000_000_000), format_go_duration(1_500_000), format_go_duration(0)
    ('1m30s', '1.5ms', '0s')
    """
    if duration_ns == 0:
        return "0s"
    sign, size = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    for unit in ("ns", "µs", "ms"):
        if size < _GO_UNITS_NS[unit] * 1_000:
            return f"{sign}{_decimal(size, _GO_UNITS_NS[unit])}{unit}"
    minutes, rest = divmod(size, _GO_UNITS_NS["m"])
    hours, minutes = divmod(minutes, 60)
    out = f"{_decimal(rest, _GO_UNITS_NS['s'])}s"
    if hours or minutes:
        out = f"{minutes}m{out}"
    return f"{sign}{hours}h{out}" if hours else sign + out


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    fraction = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)
