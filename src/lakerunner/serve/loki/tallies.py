"""Counts entries or bytes by labels, as metric queries do: scanned in columns, on the workers, labels once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.model.errors import Bug
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.logql.ast import Grouping, LogRange, LogSelector, RangeAggregate, VectorAggregate
from lakerunner.query.logql.printer import print_expr
from lakerunner.query.series.results import MatrixResult, VectorResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.stats import QueryStats
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.loki.times import Bounds
from lakerunner.serve.service import QueryService, Question

LOGQL = "logql"
COUNT, BYTES = "count_over_time", "bytes_over_time"


@dataclass(frozen=True, slots=True)
class Tally:
    """One group of entries: its labels, and how many entries or bytes it has."""

    labels: dict[str, str]
    number: float


@dataclass(frozen=True, slots=True)
class Tallies:
    """Groups of the entries of a time range."""

    service: QueryService
    query: RunningQuery
    selector: LogSelector

    def of_range(self, op: str, names: Sequence[str], bounds: Bounds) -> tuple[list[Tally], QueryStats]:
        """Groups over the whole range, its ends included. It begins earlier if it is not of whole milliseconds."""
        range_ms = -(-(bounds.range_ns + 1) // NS_PER_MS)
        times = QueryTimes.of_ns(bounds.end_ns, bounds.end_ns, 0)
        answer = self.service.answer(Question(LOGQL, self._text(op, names, range_ms), times), self.query)
        value = answer.result.value
        if not isinstance(value, VectorResult):
            raise Bug(f"cannot count entries: the answer is a {type(value).__name__}")
        pairs = zip(value.labels, value.values.tolist(), strict=True)
        return [Tally(dict(labels.pairs), number) for labels, number in pairs], answer.stats

    def by_step(self, op: str, names: Sequence[str], bounds: Bounds, step_ms: int) -> tuple[MatrixResult, QueryStats]:
        """Groups at every step of the range, each over the time since the step before it."""
        times = QueryTimes.of_ns(bounds.start_ns, bounds.end_ns, step_ms)
        answer = self.service.answer(Question(LOGQL, self._text(op, names, step_ms), times), self.query)
        value = answer.result.value
        if not isinstance(value, MatrixResult):
            raise Bug(f"cannot count entries: the answer is a {type(value).__name__}")
        return value, answer.stats

    def _text(self, op: str, names: Sequence[str], range_ms: int) -> str:
        counted = RangeAggregate(op, LogRange(self.selector, range_ms * NS_PER_MS))
        return print_expr(VectorAggregate("sum", counted, grouping=Grouping(tuple(names))))
