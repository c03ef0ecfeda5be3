"""Show results as text for people or as JSON for programs. Verbs do not print by themselves.

Data is never markup. Anybody who writes an object or a log line chooses its names and texts, so text output escapes
whatever a terminal would act upon, and every row of a table is one line that is never folded.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from lakerunner.model.errors import BadInput, LakeError

#: Format characters, which print nothing but reverse, hide or join text.
_HIDDEN = (
    "\u00ad\u061c\u180e\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0001-\U000e007f"
)
#: Characters that JSON leaves as they are although a terminal acts upon them.
_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f{_HIDDEN}]")
_HIDDEN_CHARACTER = re.compile(f"[{_HIDDEN}]")
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
#: Cells up to this width are padded. A longer one shifts its own row only.
_MAX_PADDED = 60
_GAP = "  "
_BOLD, _RESET, _CLEAR = "\x1b[1m", "\x1b[0m", "\x1b[H\x1b[2J"


class OutputFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


class DataFormat(enum.StrEnum):
    """How the data of queries is shown."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


def check_terminal(kind: DataFormat) -> None:
    """Refuse to write a binary format to a terminal, which shows nothing of it and may obey its bytes."""
    if kind in (DataFormat.ARROW, DataFormat.PARQUET) and sys.stdout.isatty():
        raise BadInput(f"cannot show {kind} on a terminal: it is binary", hint=f"write it to a file: > FILE.{kind}")


def shows_colour() -> bool:
    """Whether standard output is a terminal whose user did not turn colours off (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


class Output:
    """Writes results to standard output. Everything else goes to standard error."""

    def __init__(self, kind: OutputFormat) -> None:
        self.kind = kind

    def rows(self, rows: Sequence[Any], columns: Sequence[str]) -> None:
        """Show rows (mappings or dataclasses) as a table, or as a list of JSON objects."""
        if self.kind is OutputFormat.JSON:
            self.document(list(rows))
            return
        lines = [[shown(fields_of(row).get(column)) for column in columns] for row in rows]
        widths = [
            max((width for cell in cells if (width := _width(cell)) <= _MAX_PADDED), default=0)
            for cells in zip(columns, *lines, strict=True)
        ]
        head = _line(columns, widths)
        _write([f"{_BOLD}{head}{_RESET}" if sys.stdout.isatty() else head, *(_line(each, widths) for each in lines)])

    def lines(self, lines: Sequence[str], document: object) -> None:
        """Show one line per text, or the document if the output format is JSON."""
        if self.kind is OutputFormat.JSON:
            self.document(document)
        else:
            _write([shown(line) for line in lines])

    def fields(self, document: object) -> None:
        """Show a mapping or dataclass as one line per field, or as a JSON object."""
        if self.kind is OutputFormat.JSON:
            self.document(document)
        else:
            _write([f"{name}: {shown(value)}" for name, value in fields_of(document).items()])

    def clear(self) -> None:
        """Clear the screen, on a terminal."""
        if self.kind is OutputFormat.TEXT and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)

    def document(self, document: object) -> None:
        """Show one JSON document, whatever the output format is."""
        sys.stdout.buffer.write(json_bytes(document, indent=True) + b"\n")
        sys.stdout.buffer.flush()

    def result(self, sentence: str, document: object) -> None:
        """Show the sentence as one line, or the document if the output format is JSON."""
        self.lines([sentence], document)


def warn(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"lakerunner: {shown(text)}\n")


def render_error(error: LakeError) -> None:
    """Write one line to standard error: what went wrong and what to do."""
    warn(str(error))


def shown(value: Any) -> str:
    """A value on one line, with nothing that a terminal would act upon.

    >>> shown("a\\x1b[31m\\nb"), shown(None), shown(True), shown({"b", "a"})
    ('a\\\\x1b[31m\\\\nb', '-', 'true', 'a, b')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | set | frozenset):
        value = ", ".join(sorted(map(str, value))) or "-"
    if not isinstance(value, str):
        value = orjson.dumps(value, default=_plain).decode() if isinstance(value, list | dict) else str(value)
    if value.isascii() and value.isprintable():
        return str(value)
    return "".join(map(_escaped, value))


def json_bytes(document: object, *, indent: bool = False) -> bytes:
    """A document as JSON that a terminal shows as it is."""
    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    text = orjson.dumps(document, default=_plain, option=option)
    if text.isascii() and b"\x7f" not in text:
        return text
    return _UNSAFE_IN_JSON.sub(_json_escape, text.decode()).encode()


def csv_line(cells: Sequence[str]) -> str:
    """One record. `csv.writer` looks at every character, which takes a third of the CPU time of an export, and does
    not quote carriage returns, which readers take for the end of a record.

    >>> csv_line(["a", "b,c", 'd"e'])
    'a,"b,c","d""e"\\n'
    """
    return ",".join([_csv_cell(cell) for cell in cells]) + "\n"


def _csv_cell(text: str) -> str:
    if '"' in text:
        return '"' + text.replace('"', '""') + '"'
    return f'"{text}"' if "," in text or "\n" in text or "\r" in text else text


def fields_of(row: Any) -> Mapping[str, Any]:
    """The fields of a dataclass, or the mapping itself."""
    if isinstance(row, Mapping):
        return row
    return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True))
    return _GAP.join(padded).rstrip()


def _width(text: str) -> int:
    """The columns that a text takes on a terminal: none for combining characters, two for wide ones."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _write(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _escaped(c: str) -> str:
    if c == " " or (c.isprintable() and not _HIDDEN_CHARACTER.match(c)):
        return c
    return _ESCAPES.get(c) or c.encode("unicode_escape", "surrogatepass").decode()


def _json_escape(match: re.Match[str]) -> str:
    pairs = match.group().encode("utf-16-be").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))


def _plain(value: object) -> object:
    """Convert a type that JSON does not have: sets to sorted lists, everything else to text."""
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)
