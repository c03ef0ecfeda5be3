"""The level of a log record in few words, found as Loki finds its `detected_level`.

An attribute that is named like a level comes first, then the severity's text, then its number, then the message. Words
that are known are normalised (`Information` is `info`), any other text is kept as it is. Where there is nothing, the
level is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import as_text, keys_of
from lakerunner.formats.level_kernel import FIELD_NAMES, LEVELS, VALUE_WORDS, Codes, levels_in
from lakerunner.formats.spelling import Mask, spelled_rows
from lakerunner.model.labels import loki_label
from lakerunner.model.signals.logs import DERIVED, SPELLED

#: An attribute of this name is the level, whatever else there is.
DETECTED = "detected_level"
_SEVERITY_TEXT = "severity_text"
#: The levels of the severity numbers 1 to 24; above, the level is unknown.
_BANDS = np.repeat([LEVELS.index(level) for level in ("trace", "debug", "info", "warn", "error", "fatal")], 4)
_KNOWN = pa.array(LEVELS)


def levels_of(table: pa.Table) -> pa.Array:
    """Return the level of each row of a table of logs."""
    named = _named(table)
    if named is not None and not named.null_count:
        return named
    numbers = pc.fill_null(table.column("severity_number"), 0).to_numpy()
    sent = numbers != 0
    derived = table.column(DERIVED)
    if derived.null_count < len(derived):
        sent &= ~pc.fill_null(pc.equal(derived, "severity_number"), False).to_numpy()
    in_range = sent & (numbers > 0) & (numbers <= len(_BANDS))
    codes = np.zeros(table.num_rows, np.uint8)
    codes[in_range] = _BANDS[numbers[in_range] - 1]
    left = ~sent if named is None else ~sent & named.is_null().to_numpy(zero_copy_only=False)
    _add_levels_of_messages(table.column("message"), left, codes)
    found = _KNOWN.take(pa.array(codes))
    return found if named is None else pc.coalesce(named, found)


def warm() -> None:
    """Compile or load the kernel for the types that ingest uses."""
    lines = pa.chunked_array([["level=info"]])
    _add_levels_of_messages(lines, np.ones(1, np.bool_), np.zeros(1, np.uint8))


def _add_levels_of_messages(messages: pa.ChunkedArray, wanted: Mask, codes: Codes) -> None:
    """Write the levels found in the wanted messages to `codes`."""
    start = 0
    for chunk in messages.chunks:
        rows = slice(start, start + len(chunk))
        start += len(chunk)
        _, offsets, data = chunk.buffers()
        if data is None or not wanted[rows].any():
            continue
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        levels_in(np.frombuffer(data, np.uint8), ends, wanted[rows], codes[rows])


def _named(table: pa.Table) -> pa.Array | None:
    """Return the levels that attributes or the severity's text name; None if there is none."""
    by_name: dict[str, list[pa.Array]] = {}
    for name, values in _attributes(table):
        by_name.setdefault(name, []).append(values)
    candidates: list[pa.Array] = []
    if given := by_name.get(DETECTED):
        # Loki normalises the first of several and shows the last.
        candidates = [*reversed(given[1:]), _normalised(given[0])]
    for name in FIELD_NAMES:
        candidates += map(_normalised, by_name.get(name, []))
    if not candidates:
        return None
    return candidates[0] if len(candidates) == 1 else pc.coalesce(*candidates)


def _attributes(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield the labels that may name a level: of the record, of its severity, of its resource and scope."""
    wanted = {name.lower() for name in (*FIELD_NAMES, DETECTED)}
    keys = keys_of(table.schema)
    spelled = None
    for level in ("attr", "severity", "resource", "scope"):
        if level == "severity":
            yield from _severity_text(table)
            continue
        for column in (f"{level}_{name}" for name in sorted(wanted)):
            if column not in table.column_names:
                continue
            values = _texts(table.column(column))
            if spelled is None:
                spelled = spelled_rows(table.column(SPELLED).combine_chunks())
            unusual = spelled.get(column, {})
            for key, rows in unusual.items():
                yield loki_label(key), pc.if_else(pa.array(rows), values, None)
            usual = loki_label(keys.get(column, [column.partition("_")[2]])[0])
            others = np.logical_or.reduce(list(unusual.values())) if unusual else None
            yield usual, values if others is None else pc.if_else(pa.array(others), None, values)


def _severity_text(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    names = table.column("severity").combine_chunks()
    derived = table.column(DERIVED)
    if derived.null_count < len(derived):
        made = pc.fill_null(pc.equal(derived, "severity"), False).combine_chunks()
        names = pc.if_else(made, pa.scalar(None, pa.string()), names)
    if names.null_count < len(names):
        yield _SEVERITY_TEXT, names


def _texts(column: pa.ChunkedArray) -> pa.Array:
    """Return the values as text; null where there is none or it is empty."""
    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    texts = as_text(plain.combine_chunks())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _normalised(names: pa.Array) -> pa.Array:
    encoded = names.dictionary_encode()
    words = [VALUE_WORDS.get(name.lower(), name) for name in encoded.dictionary.to_pylist()]
    return pa.array(words, pa.string()).take(encoded.indices)
