"""`logfmt`: every `key=value` pair of the line becomes a label, or those that its arguments name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.text_bytes import Bytes, Offsets
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Check, Entries
from lakerunner.query.logql.field_paths import parse_logfmt_key
from lakerunner.query.logql.stages import logfmt_kernel
from lakerunner.query.logql.stages.field_kernels import EMPTY, KIND, replaced
from lakerunner.query.logql.stages.fields import (
    Fields,
    Indices,
    Keys,
    Wanted,
    enough_bits,
    parsed_enough,
    sanitized,
    scanned,
    with_fields,
    with_parsed,
    with_parser_error,
)

LOGFMT_ERROR = "LogfmtParserErr"
_REASONS = pa.array(logfmt_kernel.ERRORS)


def logfmt_fields(entries: Entries, stage: ast.Logfmt, wanted: Wanted, check: Check) -> Entries:
    if stage.extractions:
        return _extracted(entries, stage, wanted, check)
    enough = enough_bits(entries, wanted)
    fields, keys, errors, places = _parsed(entries.lines, stage.strict, stage.keep_empty, enough, wanted, check)
    made = with_fields(entries, fields, _names(keys), wanted, check)
    errors[parsed_enough(made, wanted)] = logfmt_kernel.FINE
    return _with_errors(made, errors, places)


def _extracted(entries: Entries, stage: ast.Logfmt, wanted: Wanted, check: Check) -> Entries:
    """The labels that the arguments name. Where the line has no such key, the label is empty.

    A key counts for the label that an argument makes of it; else for the label of its own name, if there is one.
    """
    sources = {parse_logfmt_key(each.expression): each.label for each in reversed(stage.extractions)}
    labels = {each.label for each in stage.extractions}
    fields, keys, errors, places = _parsed(entries.lines, stage.strict, True, -1, None, check)
    targets = [sources.get(name, name) for name in _names(keys)]
    used = np.array([target in labels for target in targets], np.bool_)
    kept = _without_replacements(fields.only(used[fields.keys]) if len(used) else fields)
    for label in labels if wanted is None else labels & wanted:
        stored = entries.stored(label)
        empty = pc.if_else(pa.array(np.zeros(len(entries), np.bool_) if stored is None else stored), None, "")
        entries = with_parsed(entries, label, empty.cast(pa.string()), replaces=True)
    made = with_fields(entries, kept, targets, wanted, check, last_wins=True, replaces=True)
    return _with_errors(made, errors, places)


def _without_replacements(fields: Fields) -> Fields:
    """Values that hold U+FFFD are empty here. Without arguments, a space takes its place."""
    found = replaced(fields.data, fields.parts)
    if not found.any():
        return fields
    parts = fields.parts.copy()
    parts[found, KIND] = EMPTY
    return Fields(fields.data, parts)


def _names(keys: Keys) -> list[str]:
    return [sanitized(text.decode(errors="replace")) for text in keys.texts]


def _with_errors(entries: Entries, errors: Any, places: Any) -> Entries:
    wrong = errors != logfmt_kernel.FINE
    if not wrong.any():
        return entries
    details = pc.binary_join_element_wise(
        "logfmt syntax error at pos ", pa.array(places).cast(pa.string()), " : ", _REASONS.take(pa.array(errors)), ""
    )
    return with_parser_error(entries, wrong, LOGFMT_ERROR, details)


def _parsed(
    lines: pa.StringArray, strict: bool, keep_empty: bool, enough: int, wanted: Wanted, check: Check
) -> tuple[Fields, Keys, Any, Any]:
    errors, places = np.zeros(len(lines), np.int8), np.zeros(len(lines), np.int64)

    def scan(
        data: Bytes, offsets: Offsets, begin: int, end: int, table: Indices, keys: Indices, count: int, out: Indices
    ) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = logfmt_kernel.pairs(
            data, offsets, begin, end, strict, keep_empty, table, keys, count, enough, out, errors, places
        )
        return found

    fields, keys = scanned(lines, scan, check, _names, wanted)
    return fields, keys, errors, places
