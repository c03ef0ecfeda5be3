"""How results are shown: as text for people, or as JSON for programs. Verbs never print themselves."""

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
    """Results on standard output, everything else on standard error."""

    def __init__(self, kind: OutputFormat) -> None:
        self.kind = kind
        self._console = Console(highlight=False, soft_wrap=True)

    def rows(self, rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
        """A table, or a list of objects."""
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
        """Begin a new page, on a terminal."""
        if self.kind is OutputFormat.TEXT and self._console.is_terminal:
            self._console.clear()

    def document(self, document: object) -> None:
        """One JSON document, whatever the format."""
        sys.stdout.buffer.write(orjson.dumps(document, default=_plain, option=orjson.OPT_INDENT_2) + b"\n")
        sys.stdout.buffer.flush()

    def result(self, sentence: str, document: object) -> None:
        """A sentence for people, or the document."""
        if self.kind is OutputFormat.JSON:
            self.document(document)
        else:
            self._console.print(sentence)


def render_error(error: LakeError) -> None:
    """One line: what went wrong and what to do."""
    sys.stderr.write(f"lakerunner: {error}\n")


def _plain(value: object) -> object:
    """What JSON does not know: sets as sorted lists, everything else as its text."""
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(sorted(str(part) for part in value)) or "-"
    return str(value)
