"""A selector made ready to run over stored rows: what the scan is asked for, and what is done to its rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from lakerunner.formats.attributes import keys_of
from lakerunner.model.signals.logs import LOGS
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Check, Entries, Stage
from lakerunner.query.logql.needed import can_drop, stored_names
from lakerunner.query.logql.pushdown import push_down
from lakerunner.query.logql.records import columns_for, entries_of
from lakerunner.query.logql.selection import selected
from lakerunner.query.logql.stages.compile import compile_stages, reads_lines
from lakerunner.query.scan.rows.conditions.predicate import Predicate
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.series.matchers import Matcher


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A compiled selector, for entries of which the labels `names` are wanted; None: all."""

    predicate: Predicate
    #: The matchers and stages that the predicate does not replace.
    matchers: tuple[Matcher, ...]
    stages: tuple[ast.Stage, ...]
    #: The stored labels that are read; None: all.
    names: frozenset[str] | None
    columns: tuple[str, ...] | None
    _run: Stage
    #: Tells it from others, if it is kept.
    number: int | None = None

    @classmethod
    def of(cls, selector: ast.LogSelector, names: frozenset[str] | None = None, *, need_lines: bool = True) -> Pipeline:
        pushed = push_down(selector)
        left, matchers = pushed.stages, pushed.matchers
        read = stored_names(left, None if names is None else names | {each.name for each in matchers})
        lines = need_lines or _read_lines(pushed.stages)
        columns = columns_for(read, need_lines=lines)
        return cls(pushed.predicate, matchers, left, read, columns, compile_stages(left, read, need_lines=need_lines))

    @property
    def can_drop(self) -> bool:
        """Whether it may leave out entries of rows that satisfy the predicate."""
        return bool(self.matchers) or can_drop(self.stages)

    @property
    def is_plain(self) -> bool:
        """Whether entries are those of the rows that satisfy the predicate, and only some labels are read."""
        return not self.matchers and not self.stages and self.columns is not None

    @property
    def reads_lines(self) -> bool:
        """Whether a stage looks at the line, which may take long."""
        return _read_lines(self.stages)

    def scan(self, start_ns: int, end_ns: int) -> RowScan:
        """A scan for all rows of a time range, in any order."""
        return RowScan(LOGS, self.predicate, self.columns, start_ns, end_ns, ordered=False)

    def entries(self, batch: pa.RecordBatch, time_ns: int | None = None, number: str | None = None) -> Entries:
        """The entries of rows that the scan found, before any stage. With `time_ns`, that is the time of all."""
        return entries_of(batch, keys_of(batch.schema), self.names, time_ns, number)

    def run(self, entries: Entries, check: Check) -> Entries:
        entries = selected(entries, self.matchers, check)
        return self._run(entries, check) if self.stages else entries


_NUMBERS = itertools.count()


def has_templates(selector: ast.LogSelector) -> bool:
    """Whether a stage may remember something from one entry to the next."""
    return any(isinstance(stage, ast.LineFormat | ast.LabelFormat) for stage in selector.stages)


def pipeline_of(selector: ast.LogSelector, names: frozenset[str] | None, *, need_lines: bool) -> Pipeline:
    """As `Pipeline.of`. Pipelines without templates are kept: dashboards ask the same again and again."""
    if has_templates(selector):
        return Pipeline.of(selector, names, need_lines=need_lines)
    return _kept_pipeline(selector, names, need_lines)


@lru_cache(maxsize=256)
def _kept_pipeline(selector: ast.LogSelector, names: frozenset[str] | None, need_lines: bool) -> Pipeline:
    return replace(Pipeline.of(selector, names, need_lines=need_lines), number=next(_NUMBERS))


def _read_lines(stages: Iterable[ast.Stage]) -> bool:
    return any(map(reads_lines, stages))
