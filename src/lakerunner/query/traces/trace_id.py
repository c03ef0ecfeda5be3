"""Trace ids as clients write them: hex, with or without the zeros at their beginning."""

from __future__ import annotations

from lakerunner.model.errors import BadInput

ID_DIGITS = 32
_HEX = frozenset("0123456789abcdef")


def full_trace_id(text: str) -> str:
    """Return the id as it is stored. A text that cannot be one is refused.

    >>> full_trace_id("2F3e")
    '00000000000000000000000000002f3e'
    """
    digits = text.strip().lower()
    if not digits or len(digits) > ID_DIGITS or not set(digits) <= _HEX:
        raise BadInput(
            f"cannot read the trace id {text[:80]!r}: it must have 1 to {ID_DIGITS} hex digits",
            hint="copy it from a search, a log record or an exemplar",
        )
    return digits.rjust(ID_DIGITS, "0")
