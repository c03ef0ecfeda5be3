"""Entries for metric queries, read from stored rows in any order."""

from __future__ import annotations

from collections.abc import Iterator

from lakerunner.query.language import RowSource
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Check, Entries
from lakerunner.query.logql.pipeline import Pipeline
from lakerunner.query.scan.rows.segment import ReadableRows


class ScannedEntries:
    """The `EntrySource` of an evaluation. It counts the entries that it gave."""

    def __init__(self, source: RowSource, check: Check) -> None:
        self._source = source
        self._check = check
        self.count = 0

    def entries(
        self, selector: ast.LogSelector, start_ns: int, end_ns: int, names: frozenset[str] | None, need_lines: bool
    ) -> Iterator[Entries]:
        pipeline = Pipeline.of(selector, names, need_lines=need_lines)

        def piped(rows: ReadableRows) -> Entries:
            return pipeline.run(pipeline.entries(rows.batch(pipeline.columns)), self._check)

        for entries in self._source.mapped(pipeline.scan(start_ns, end_ns), piped):
            if len(entries):
                self.count += len(entries)
                yield entries
