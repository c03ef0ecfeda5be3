"""Read JSON lines: one record per line, or one array of records. A bad line is counted and skipped."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Entry
from lakerunner.formats.decoded import Tally, excerpt_of
from lakerunner.formats.json_columns import JsonColumns
from lakerunner.formats.json_envelopes import RAW_MESSAGE, unwrapped
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.records.fields import is_key_of
from lakerunner.formats.records.records import Records
from lakerunner.formats.records.tables import record_tables
from lakerunner.formats.text.recognise import recognise
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS

#: A line that is neither JSON nor blank.
_OTHER_LINE = re.compile(rb"\n[^{\r\n]")
#: Lines of JSON that are parsed to see whether text is among them.
_LINES_TRIED = 20
_OPENED = re.compile(rb"\s*\{\s*\n")
_BLANKS = re.compile(r"[\s,]*")
#: A whole line in Docker's json-file. Other writers of the same keys leave the newline out.
_DOCKER_LINE = b'\\n","stream":"'
#: The key of a program's own line in a record of a container runtime or shipper.
_RAW_LINE = "log"


def read_jsonl(data: bytes, signal: Signal, limits: Limits, options: Options) -> tuple[dict[str, pa.Table], Tally]:
    tally = Tally()
    columns = JsonColumns(limits, tally, lambda key: is_key_of(signal.name, key, options.fields))
    lines: list[tuple[int, bytes]] = []
    parsed = documents(data, limits, tally)
    if signal is LOGS and _DOCKER_LINE in data:
        parsed = _whole_lines(parsed, limits.value_bytes)
    for number, line, document in parsed:
        for record in unwrapped(document) if signal is LOGS else (document,):
            if not isinstance(record, dict):
                tally.reject("not_an_object", where=f"line {number}", excerpt=excerpt_of(line))
            elif columns.add(record, len(lines)):
                lines.append((number, line))
            else:
                tally.reject("nesting_depth", where=f"line {number}", excerpt=excerpt_of(line))

    def describe(row: int) -> tuple[str, str]:
        number, line = lines[row]
        return f"line {number}", excerpt_of(line)

    entries = columns.entries()
    if signal is LOGS:
        entries = _with_lines_recognised(entries)
    records = Records(len(lines), entries, describe, tally)
    return record_tables(records, signal, limits, options), tally


def _whole_lines(parsed: Iterator[tuple[int, bytes, Any]], most_chars: int) -> Iterator[tuple[int, bytes, Any]]:
    """Join the parts into which Docker cuts a long line: all but the last end without a newline.

    A line that is longer than a message may be is not joined further.
    """
    open_parts: dict[str, tuple[int, bytes, dict[str, Any]]] = {}
    for number, line, document in parsed:
        if not _is_docker(document):
            yield number, line, document
            continue
        stream = document["stream"]
        if stream in open_parts:
            number, line, first = open_parts.pop(stream)
            document = {**first, "log": first["log"] + document["log"]}
        if document["log"].endswith("\n") or len(document["log"]) > most_chars:
            yield number, line, document
        else:
            open_parts[stream] = number, line, document
    yield from open_parts.values()


def _is_docker(document: Any) -> bool:
    return (
        type(document) is dict
        and len(document) <= 4
        and type(document.get("log")) is str
        and type(document.get("stream")) is str
    )


def _with_lines_recognised(entries: list[Entry]) -> list[Entry]:
    """Recognise the lines of programs inside of the records of runtimes and shippers."""
    kept = []
    for entry in entries:
        if entry.key not in (_RAW_LINE, RAW_MESSAGE) or not pa.types.is_string(entry.source.type):
            kept.append(entry)
            continue
        lines = pc.utf8_rtrim(entry.source.take(pa.array(entry.index)), "\r\n")
        found = recognise(lines)
        parts = [Entry(part.key, entry.rows[part.rows], part.source, part.index) for part in found.entries]
        if entry.key == RAW_MESSAGE:
            # CloudWatch has the time already, and users search for the message as they see it there.
            kept += [entry, *(part for part in parts if part.key == "severity")]
            continue
        kept += parts
        at = np.flatnonzero(found.messages.is_valid().to_numpy(zero_copy_only=False))
        kept.append(Entry(entry.key, entry.rows[at], found.messages, at))
    return kept


def documents(data: bytes, limits: Limits, tally: Tally) -> Iterator[tuple[int, bytes, Any]]:
    """Yield every JSON document with its line number and line.

    The elements of an array are documents. A single document may span many lines.
    """
    whole = _whole(data)
    if isinstance(whole, list):
        yield from ((number, b"", element) for number, element in enumerate(whole, 1))
        return
    if whole is not None:
        yield 1, data, whole
        return
    if (sequence := _sequence(data)) is not None:
        yield from sequence
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.strip()
        if not line:
            continue
        if len(line) > limits.line_bytes:
            tally.reject("line_bytes", where=f"line {number}", excerpt=excerpt_of(line))
            continue
        try:
            yield number, line, _loads(line, tally)
        except orjson.JSONDecodeError as reason:
            excerpt = excerpt_of(line[max(reason.pos - 40, 0) :])
            tally.reject("bad_json", where=f"line {number}, byte {reason.pos}", excerpt=excerpt)


def is_mixed(data: bytes) -> bool:
    """Return whether lines of JSON stand among lines of text."""
    body = data.lstrip()
    if body[:1] in (b"{", b"[") and (not _OTHER_LINE.search(data) or _whole(data) is not None):
        return False
    found = (line for line in data.split(b"\n") if line.startswith(b"{"))
    return any(_is_object(line) for line in itertools.islice(found, _LINES_TRIED))


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _sequence(data: bytes) -> list[tuple[int, bytes, Any]] | None:
    """Parse documents that follow each other, each over several lines. Return None where a line is a document."""
    if not _OPENED.match(data):
        return None
    decoder, text, at = json.JSONDecoder(parse_int=_whole_or_float), data.decode("utf-8", "replace"), 0
    found: list[tuple[int, bytes, Any]] = []
    try:
        while (start := _BLANKS.match(text, at)) and start.end() < len(text):
            document, at = decoder.raw_decode(text, start.end())
            found.append((text.count("\n", 0, start.end()) + 1 if len(found) < 3 else 0, b"", document))
        orjson.dumps([document for _, _, document in found])
    except (ValueError, TypeError, RecursionError):
        return None
    return found


def _loads(line: bytes, tally: Tally) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as reason:
        if "utf-8" in reason.msg.lower():
            document = orjson.loads(line.decode("utf-8", "replace"))
            tally.shorten("invalid_utf8", 1)
            return document
        # Python's loggers write NaN and Infinity, which are not JSON.
        if b"NaN" not in line and b"Infinity" not in line:
            raise
        try:
            document = json.loads(line, parse_int=_whole_or_float)
            # Python's parser accepts lone surrogates, which Arrow text cannot hold; orjson refuses them.
            orjson.dumps(document)
            return document
        except (ValueError, TypeError, RecursionError):
            pass
        raise


def _whole_or_float(digits: str) -> int | float:
    """Read a whole number as orjson does: as a float if it may not fit 64 bits."""
    return int(digits) if len(digits) < 19 else float(digits)


def _whole(data: bytes) -> Any:
    """Parse the data as one document, or return None where its first line is a document already."""
    first, _, rest = data.lstrip().partition(b"\n")
    if rest.strip() and not first.startswith(b"["):
        try:
            orjson.loads(first)
            return None
        except orjson.JSONDecodeError:
            if first.rstrip() != b"{":
                return None
    elif not first.startswith(b"["):
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
