"""Convert between OTLP severity numbers and the level names that loggers use."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints

_FAMILIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
#: Number -> the short name of OpenTelemetry's log data model: TRACE, TRACE2, ... FATAL4.
_NAMES = pa.array([None] + [f"{family}{n or ''}" for family in _FAMILIES for n in (0, 2, 3, 4)], pa.string())

_NUMBERS = {
    **{str(name): number for number, name in enumerate(_NAMES.to_pylist()) if name},
    "VERBOSE": 1,
    "FINEST": 1,
    "FINER": 1,
    "FINE": 5,
    "D": 5,
    "CONFIG": 9,
    "I": 9,
    "INFORMATION": 9,
    "INFORMATIONAL": 9,
    "NOTICE": 10,
    "W": 13,
    "WARNING": 13,
    "E": 17,
    "ERR": 17,
    "SEVERE": 17,
    "CRIT": 18,
    "CRITICAL": 18,
    "DPANIC": 18,
    "ALERT": 19,
    "PANIC": 20,
    "EMERG": 21,
    "EMERGENCY": 21,
}
#: bunyan and pino have their own numbers, from 10 (trace) to 60 (fatal).
_PINO = {10: 1, 20: 5, 30: 9, 40: 13, 50: 17, 60: 21}


def name_of(numbers: Ints) -> pa.Array:
    """Return the short name of each number; null outside of 1 to 24."""
    inside = (numbers >= 1) & (numbers <= 24)
    return _NAMES.take(pa.array(np.where(inside, numbers, 0)))


def number_of(names: pa.Array) -> pa.Array:
    """Return the number of each name; null for unknown names. Case does not matter."""
    encoded = names.dictionary_encode()
    found = [_number(name) for name in encoded.dictionary.to_pylist()]
    return pa.array(found, pa.int32()).take(encoded.indices)


def fill(names: pa.Array, numbers: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return names and numbers, each derived from the other where only one was sent."""
    plain = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    derived = names.null_count and bool(np.any(plain > 0))
    return (
        pc.coalesce(names, name_of(plain)) if derived else names,
        pc.coalesce(numbers, number_of(names)) if numbers.null_count else numbers,
    )


def _number(name: str | None) -> int | None:
    if name is None:
        return None
    text = name.strip().upper()
    if text.isdecimal():
        return _PINO.get(int(text))
    return _NUMBERS.get(text)
