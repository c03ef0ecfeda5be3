"""Show results as text for people or as JSON for programs. Verbs do not print by themselves."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping, Sequence

import orjson
from rich.console import Console
from rich.table import Table

from lakerunner.model.errors import LakeError


class OutputFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


class Output:
    """Writes results to standard output. Everything else goes to standard error."""

    def __init__(self, kind: OutputFormat) -> None:
        self.kind = kind
        self._console = Console(highlight=False, soft_wrap=True)

    def rows(self, rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
        """Show rows as a table, or as a list of JSON objects."""
        if self.kind is OutputFormat.JSON:
            self.document(list(rows))
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(_text(row.get(column)) for column in columns))
        self._console.print(table)

    def clear(self) -> None:
        """Clear the screen, on a terminal."""
        if self.kind is OutputFormat.TEXT and self._console.is_terminal:
            self._console.clear()

    def document(self, document: object) -> None:
        """Show one JSON document, whatever the output format is."""
        sys.stdout.buffer.write(orjson.dumps(document, default=_plain, option=orjson.OPT_INDENT_2) + b"\n")
        sys.stdout.buffer.flush()

    def result(self, sentence: str, document: object) -> None:
        """Show the sentence, or the document if the output format is JSON."""
        if self.kind is OutputFormat.JSON:
            self.document(document)
        else:
            self._console.print(sentence)


def render_error(error: LakeError) -> None:
    """Write one line to standard error: what went wrong and what to do."""
    sys.stderr.write(f"lakerunner: {error}\n")


def _plain(value: object) -> object:
    """Convert a type that JSON does not have: sets to sorted lists, everything else to text."""
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(sorted(str(part) for part in value)) or "-"
    return str(value)
