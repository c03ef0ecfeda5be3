"""Convert between OTLP severity numbers and the level names and numbers that loggers use."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints
from lakerunner.model.signals.logs import DERIVED

_FAMILIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
#: Number -> the short name of OpenTelemetry's log data model: TRACE, TRACE2, ... FATAL4.
_NAMES = pa.array([None] + [f"{family}{n or ''}" for family in _FAMILIES for n in (0, 2, 3, 4)], pa.string())

#: Names by number. The numbers of syslog's levels are those of OpenTelemetry's mapping.
_WORDS: Mapping[int, str] = {
    1: "T TRC TRCE TRAC VRB V VERBOSE FINEST FINER SILLY",
    5: "D DBG DBUG DEBU FINE",
    9: "I INF INFORMATION INFORMATIONAL CONFIG LOG NOTE SYSTEM HTTP ACTIVITY STATEMENT DETAIL HINT CONTEXT QUERY",
    10: "N NOTICE SUCCESS",
    13: "W WRN WARNING DEPRECATED",
    17: "E ERR ERRO SEVERE FAIL FAILURE",
    18: "C CRIT CRITICAL DPANIC FAULT",
    19: "ALERT",
    20: "PANIC PANI",
    21: "F FTL FATA EMERG EMERGENCY",
}
#: The number of every name that is known, in upper case.
LEVEL_NUMBERS: Mapping[str, int] = {
    # PostgreSQL has DEBUG1 to DEBUG5, Apache trace1 to trace8.
    **{f"DEBUG{n}": 5 for n in range(1, 6)},
    **{f"TRACE{n}": 1 for n in range(1, 9)},
    # PHP's names.
    "FATAL ERROR": 21,
    "PARSE ERROR": 21,
    **{word: number for number, words in _WORDS.items() for word in words.split()},
    **{str(name): number for number, name in enumerate(_NAMES.to_pylist()) if name},
}
#: Letters stand for words; a name of one letter tells a reader nothing.
_LETTERS = {"T": "TRACE", "V": "VERBOSE", "D": "DEBUG", "I": "INFO", "N": "NOTICE", "W": "WARN", "E": "ERROR"} | {
    "F": "FATAL",
    "C": "CRITICAL",
    "A": "FATAL",
}
_SYSLOG_NAMES = ("EMERG", "ALERT", "CRIT", "ERROR", "WARN", "NOTICE", "INFO", "DEBUG")
#: Numbers that loggers write as levels, by the scale. `log_tables` chooses the scale.
SCALES: Mapping[str, Mapping[int, int]] = {
    "syslog": {0: 21, 1: 19, 2: 18, 3: 17, 4: 13, 5: 10, 6: 9, 7: 5},
    "pino": {10: 1, 20: 5, 30: 9, 40: 13, 50: 17, 60: 21},
    "python": {5: 1, 10: 5, 20: 9, 25: 10, 30: 13, 40: 17, 50: 18},
    "logback": {5_000: 1, 10_000: 5, 20_000: 9, 30_000: 13, 40_000: 17, 50_000: 21},
    "log4j2": {100: 21, 200: 17, 300: 13, 400: 9, 500: 5, 600: 1},
    "application insights": {0: 1, 1: 9, 2: 13, 3: 17, 4: 21},
    "windows": {0: 9, 1: 21, 2: 17, 3: 13, 4: 9, 5: 5},
    "otlp": {number: number for number in range(1, 25)},
}


def name_of(numbers: Ints) -> pa.Array:
    """Return the short name of each number; null outside of 1 to 24."""
    inside = (numbers >= 1) & (numbers <= 24)
    return _NAMES.take(pa.array(np.where(inside, numbers, 0)))


def syslog_names(levels: pa.Array) -> pa.Array:
    """Return the names of syslog's levels, 0 to 7."""
    return pa.array(_SYSLOG_NAMES).take(levels)


def number_of(names: pa.Array) -> pa.Array:
    """Return the number of each name; null for unknown names. Case does not matter."""
    encoded = names.dictionary_encode()
    found = [_number(name) for name in encoded.dictionary.to_pylist()]
    return pa.array(found, pa.int32()).take(encoded.indices)


def spelled(names: pa.Array) -> pa.Array:
    """Return the names with single letters written out."""
    encoded = names.dictionary_encode()
    words = [_LETTERS.get(name, name) for name in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.string()).take(encoded.indices)


def on_scale(levels: pa.Array, scale: str) -> pa.Array:
    """Return the OTLP number of each level on a scale. A level between two steps counts as the lower one."""
    steps = SCALES[scale]
    lowest = min(steps)
    encoded = levels.dictionary_encode()
    found = [
        None if level is None or level < lowest else steps[max(step for step in steps if step <= level)]
        for level in encoded.dictionary.to_pylist()
    ]
    return pa.array(found, pa.int32()).take(encoded.indices)


def fill(names: pa.Array, numbers: pa.Array) -> dict[str, pa.Array]:
    """Return the columns of names and numbers, each derived from the other where only one was sent.

    A third column tells which one was derived.
    """
    plain = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    all_names, all_numbers = names, numbers
    if names.null_count and bool(np.any(plain > 0)):
        all_names = pc.coalesce(names, name_of(plain))
    if numbers.null_count:
        all_numbers = pc.coalesce(numbers, number_of(names))
    columns = {"severity": all_names, "severity_number": all_numbers}
    derived = [
        pc.if_else(pc.and_(sent.is_null(), columns[name].is_valid()), name, None)
        for name, sent in (("severity", names), ("severity_number", numbers))
        if columns[name].null_count < sent.null_count
    ]
    return columns | ({DERIVED: pc.coalesce(*derived).cast(pa.string())} if derived else {})


def _number(name: str | None) -> int | None:
    if name is None:
        return None
    text = name.strip().upper()
    number = LEVEL_NUMBERS.get(text)
    if number is None and (base := text.rstrip("0123456789"))[-1:] in ("+", "-") and base[:-1] in _FAMILIES:
        # Go's slog writes levels between the named ones as an offset: DEBUG-4, ERROR+2.
        number = min(max(LEVEL_NUMBERS[base[:-1]] + int(text[len(base) - 1 :]), 1), 24) if text != base else None
    return number
