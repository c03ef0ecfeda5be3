"""The entries of a log query in the order of time, up to its limit.

If the predicate decides alone, the scan stops at the limit. Stages that leave entries out make it unknown how many rows
are needed. Then the rows are read in pieces, each several times as large as the one before, until enough entries are
left. A query that keeps most of its rows stops early, and one that keeps almost none soon reads large pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakerunner.model.signals.logs import LOGS
from lakerunner.query.language import RowSource
from lakerunner.query.logql import ast
from lakerunner.query.logql.answer import SCHEMA, TIMESTAMP, answer_batch
from lakerunner.query.logql.entries import Check, Entries, Ints
from lakerunner.query.logql.pipeline import Pipeline
from lakerunner.query.logql.stored_rows import FEW_ROWS, Equality, equalities, stored_answer
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.row_group.rows import Found
from lakerunner.query.scan.rows.scan import LATE_ROWS, one_batch

#: Rows of the first piece per entry that is wanted, and how much larger each next piece is.
_FIRST, _GROWTH = 4, 4
#: Of fewer rows, all columns are read at once.
_FEW_ROWS = 256
#: Later than any time.
_NEVER_NS = 1 << 63


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A log query over [start_ns, end_ns). Without a limit, all entries are wanted."""

    selector: ast.LogSelector
    start_ns: int
    end_ns: int
    newest_first: bool
    limit: int | None


@dataclass(frozen=True, slots=True)
class LogPipelines:
    """A compiled selector, and one with only the labels that its stages read, where that is worth it."""

    whole: Pipeline
    filtering: Pipeline | None
    #: All that the query does to stored rows, if that is so simple; else None.
    equalities: tuple[Equality, ...] | None

    @classmethod
    def of(cls, selector: ast.LogSelector) -> LogPipelines:
        whole = Pipeline.of(selector)
        return cls(whole, _filtering(selector), equalities(whole.matchers, whole.stages))


def log_rows(
    query: LogQuery, source: RowSource, check: Check, pipelines: LogPipelines | None = None
) -> Iterator[pa.RecordBatch]:
    """The entries as batches of an answer, in order. `pipelines` are those of the selector, if they are at hand."""
    pipelines = pipelines or LogPipelines.of(query.selector)
    reader = _Reader(pipelines, check)
    pipeline = reader.pipeline
    scan = RowScan(LOGS, pipeline.predicate, None, query.start_ns, query.end_ns, query.newest_first, query.limit)
    if query.limit is None or not pipeline.can_drop:
        yield from source.rows(scan, reader)
        return
    left = query.limit
    for batch in _pieces(scan, query.limit, source, reader):
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return


def _filtering(selector: ast.LogSelector) -> Pipeline | None:
    """The same pipeline with only the labels that its stages read, to find the entries that pass; None: all labels."""
    narrow = Pipeline.of(selector, frozenset())
    return narrow if narrow.can_drop and narrow.columns is not None else None


class _Reader:
    """Makes batches of the answer from found rows, and remembers how many there were and how far they reach."""

    def __init__(self, pipelines: LogPipelines, check: Check) -> None:
        self.pipeline = pipelines.whole
        self._filtering = pipelines.filtering
        self._equalities = pipelines.equalities
        self._check = check
        #: Without stages that leave entries out, nobody asks how far the rows reach.
        self._tracks = self.pipeline.can_drop
        self.begin()

    def begin(self) -> None:
        self.rows, self.first_ns, self.last_ns = 0, _NEVER_NS, -_NEVER_NS

    def part(self, found: Found) -> pa.RecordBatch:
        self._check()
        if self._tracks:
            self.rows += len(found.rows)
            self.first_ns, self.last_ns = min(self.first_ns, found.times.min()), max(self.last_ns, found.times.max())
        if (made := self._kept_entries(found)) is not None:
            return made
        if self._filtering is not None and len(found.rows) > _FEW_ROWS:
            found = found.chosen(self._passing(self._filtering, found))
        return found.batch(self.pipeline.columns)

    def _kept_entries(self, found: Found) -> pa.RecordBatch | None:
        """Rows that are asked for again, as entries: they are made once, where that takes no rules."""
        wanted, columns = self._equalities, self.pipeline.columns
        if wanted is None:
            return None
        return found.made(("entries", wanted, columns), columns, lambda rows: stored_answer(rows, wanted))

    def whole(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Rows of one schema are made into entries at once: each small batch would take as long as a large one."""
        alike: list[list[pa.RecordBatch]] = []
        for part in parts:
            if alike and part.schema.equals(alike[-1][0].schema, check_metadata=True):
                alike[-1].append(part)
            else:
                alike.append([part])
        return one_batch([self._answer(one_batch(each)) for each in alike])

    def _answer(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.schema.equals(SCHEMA):
            return rows  # Kept entries.
        if rows.num_rows <= FEW_ROWS and self._equalities is not None:
            stored = stored_answer(rows, self._equalities)
            if stored is not None:
                return stored
        return answer_batch(self.pipeline.run(self.pipeline.entries(rows), self._check))

    def _passing(self, filtering: Pipeline, found: Found) -> Ints:
        """The places of the rows whose entries pass. Entries carry their place instead of their time."""
        entries = filtering.entries(found.batch(filtering.columns))
        placed = Entries(np.arange(len(entries), dtype=np.int64), entries.lines, entries.columns)
        return filtering.run(placed, self._check).times_ns


def _pieces(scan: RowScan, limit: int, source: RowSource, reader: _Reader) -> Iterator[pa.RecordBatch]:
    """All entries in order. Whoever reads them stops when there are enough."""
    size = limit * _FIRST
    while size <= LATE_ROWS:
        reader.begin()
        batches = list(source.rows(replace(scan, limit=size), reader))
        if reader.rows < size:
            yield from batches
            return
        # More rows may have the last time: they come with the next piece.
        edge_ns = int(reader.first_ns if scan.newest_first else reader.last_ns)
        size *= _GROWTH
        yield from _before(batches, edge_ns)
        scan = replace(scan, end_ns=edge_ns + 1) if scan.newest_first else replace(scan, start_ns=edge_ns)
    yield from source.rows(replace(scan, limit=None), reader)


def _before(batches: list[pa.RecordBatch], edge_ns: int) -> Iterator[pa.RecordBatch]:
    """The entries at other times than the last one."""
    for batch in batches:
        times = batch.column(TIMESTAMP).cast(pa.int64()).to_numpy()
        # In order of time, entries of the last time come last.
        count = int(np.count_nonzero(times != edge_ns))
        if count:
            yield batch.slice(0, count)
