"""Read plain text logs, one record per line or per group of lines; lines of JSON among them are records too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Entry, Ints
from lakerunner.formats.decoded import Tally, excerpt_of
from lakerunner.formats.json_columns import JsonColumns
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.records.fields import is_key_of
from lakerunner.formats.records.records import Records
from lakerunner.formats.records.tables import record_tables
from lakerunner.formats.text.dialects import HEADS, w3c_dialect
from lakerunner.formats.text.envelopes import unwrap
from lakerunner.formats.text.lines import joined, split_lines
from lakerunner.formats.text.recognise import Recognised, recognise
from lakerunner.formats.text.records import Mask, record_starts
from lakerunner.formats.text_encoding import valid_text
from lakerunner.model.signal import Signal

_JSON_OBJECT = r'^\s*\{\s*(?:"|\})'
#: zap's console writes a tab and the fields as JSON after the message.
_TRAILING_JSON = r'(?s)^(?P<message>.*)\t(?P<fields>\{".*\})$'
_JAVA_LEVEL = r"(?s)^[\w.$]+ [\w$<>]+\n(?P<level>SEVERE|WARNING|INFO|CONFIG|FINE|FINER|FINEST): (?P<message>.*)$"
#: Where the directives of W3C's extended format stand.
_DIRECTIVE_BYTES = 16_384
_STACK = "exception.stacktrace"


def read_text(data: bytes, signal: Signal, limits: Limits, options: Options) -> tuple[dict[str, pa.Table], Tally]:
    tally = Tally()
    # A log that was truncated while it was written begins with NULs.
    lines, numbers = split_lines(valid_text(data.lstrip(b"\x00"), tally), limits, tally)
    unwrapped = unwrap(lines, numbers)
    lines, numbers = unwrapped.lines, unwrapped.numbers
    w3c = w3c_dialect(data[:_DIRECTIVE_BYTES].decode("utf-8", "replace")) if data.startswith(b"#") else None
    if w3c is not None:
        content = np.flatnonzero(pc.invert(pc.starts_with(lines, "#")).to_numpy(zero_copy_only=False))
        lines, numbers = lines.take(pa.array(content)), numbers[content]
    found = recognise(lines, HEADS if w3c is None else (w3c, *HEADS))
    is_json = pc.match_substring_regex(lines, _JSON_OBJECT).to_numpy(zero_copy_only=False)
    starts = record_starts(lines, found.headed, found.timed_within, is_json, wrapped=bool(unwrapped.entries))
    entries = [*found.entries, *unwrapped.entries]
    row_count = len(starts)
    messages = _messages(found, lines, starts, entries)
    entries = _by_row(entries, starts, len(lines))
    columns = JsonColumns(limits, tally, lambda key: is_key_of(signal.name, key, options.fields))
    messages, bad = _take_json(messages, columns, is_json[starts], options)
    messages = _take_java_levels(messages, entries)

    def describe(row: int) -> tuple[str, str]:
        return f"line {numbers[starts[row]]}", excerpt_of(lines[int(starts[row])].as_py().encode())

    valid = np.flatnonzero(messages.is_valid().to_numpy(zero_copy_only=False))
    entries += [*columns.entries(), Entry("message", valid, messages, valid)]
    records = Records(row_count, entries, describe, tally)
    records.refuse("bad_json", bad)
    return record_tables(records, signal, limits, options), tally


def _messages(found: Recognised, lines: pa.Array, starts: Ints, entries: list[Entry]) -> pa.Array:
    """Return the message of each record: that of its head, and the lines that continue it.

    A head that has its message among its pairs (logfmt) gets them as a stack trace instead.
    """
    if len(starts) == len(lines):
        return found.messages
    is_start = np.zeros(len(lines), np.bool_)
    is_start[starts] = True
    absent = found.messages.is_null().to_numpy(zero_copy_only=False)
    texts = pc.if_else(pa.array(is_start), found.messages.fill_null(""), lines)
    first = int(starts[0]) if len(starts) else len(lines)
    whole = joined(texts.slice(first), starts - first, "\n")
    whole = pc.utf8_rtrim_whitespace(whole)
    # The head may end before the message begins: .NET writes the message on the next line, indented.
    whole = pc.replace_substring_regex(whole, r"^\n\s*", "")
    rows = np.flatnonzero(absent[starts])
    if len(rows):
        stacks = whole.take(pa.array(rows))
        having = pc.not_equal(stacks, "").to_numpy(zero_copy_only=False)
        at = np.flatnonzero(having)
        if len(at):
            entries.append(Entry(_STACK, starts[rows[at]], stacks, at))
        whole = pc.if_else(pa.array(_mask(rows.tolist(), len(starts))), pa.scalar(None, pa.string()), whole)
    return whole


def _by_row(entries: list[Entry], starts: Ints, line_count: int) -> list[Entry]:
    """Turn lines into rows, and drop what was found in continuation lines: it belongs to their text."""
    if len(starts) == line_count:
        return entries
    row_of = np.full(line_count, -1, np.int64)
    row_of[starts] = np.arange(len(starts))
    kept = []
    for entry in entries:
        rows = row_of[entry.rows]
        having = rows >= 0
        if having.any():
            kept.append(Entry(entry.key, rows[having], entry.source, entry.index[having]))
    return kept


def _take_json(messages: pa.Array, columns: JsonColumns, is_json: Mask, options: Options) -> tuple[pa.Array, Mask]:
    """Parse messages that are JSON objects, or that end with one. Return the other messages, and the bad JSON lines."""
    bad = np.zeros(len(messages), np.bool_)
    candidates = pc.fill_null(pc.match_substring_regex(messages, _JSON_OBJECT), False).to_numpy(zero_copy_only=False)
    replaced: list[int] = []
    rows = np.flatnonzero(candidates | is_json)
    for row, text in zip(rows.tolist(), messages.take(pa.array(rows)).to_pylist(), strict=True):
        document = _object(text)
        if document is None or not columns.add(document, row):
            bad[row] = is_json[row]
        elif any(is_key_of("logs", key, options.fields, "message") for key in document) or is_json[row]:
            replaced.append(row)
    if not (is_json & ~bad).any():
        # Braces, but no JSON: these lines are text.
        bad[:] = False
    messages = _take_trailing_json(messages, columns)
    if replaced:
        messages = pc.if_else(pa.array(_mask(replaced, len(messages))), pa.scalar(None, pa.string()), messages)
    return messages, bad


def _take_trailing_json(messages: pa.Array, columns: JsonColumns) -> pa.Array:
    # Finding the tab and the brace costs a thirtieth of the regular expression.
    rows = np.flatnonzero(pc.fill_null(pc.match_substring(messages, '\t{"'), False).to_numpy(zero_copy_only=False))
    if not len(rows):
        return messages
    parts = pc.extract_regex(messages.take(pa.array(rows)), _TRAILING_JSON)
    texts: list[str] = []
    cut: list[int] = []
    for row, part in zip(rows.tolist(), parts.to_pylist(), strict=True):
        document = _object(part["fields"]) if part else None
        if document is not None and columns.add(document, row):
            cut.append(row)
            texts.append(part["message"])
    return pc.replace_with_mask(messages, pa.array(_mask(cut, len(messages))), pa.array(texts, pa.string()))


def _mask(rows: Sequence[int], row_count: int) -> Mask:
    mask = np.zeros(row_count, np.bool_)
    mask[rows] = True
    return mask


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        document = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _take_java_levels(messages: pa.Array, entries: list[Entry]) -> pa.Array:
    if not pc.any(pc.match_substring_regex(messages, _JAVA_LEVEL)).as_py():
        return messages
    parts = pc.extract_regex(messages, _JAVA_LEVEL)
    hit = parts.is_valid()
    rows = np.flatnonzero(hit.to_numpy(zero_copy_only=False))
    found = parts.take(pa.array(rows))
    entries.append(Entry("severity", rows, found.field("level"), np.arange(len(rows))))
    return pc.replace_with_mask(messages, hit, found.field("message"))
