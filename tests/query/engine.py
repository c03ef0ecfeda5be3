"""PromQL over any source of series, in process: what tests of the language use."""

from __future__ import annotations

from collections.abc import Callable

from lakerunner.query.language import Plan
from lakerunner.query.promql.language import LANGUAGE
from lakerunner.query.run import run
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.results import QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions


class Engine:
    def __init__(self, source: SeriesSource, options: EngineOptions | None = None) -> None:
        self._source = source
        self._options = options or EngineOptions()

    def compile(self, text: str, start_ms: int, end_ms: int, step_ms: int) -> Plan:
        return LANGUAGE.compile(text, QueryTimes(start_ms, end_ms, step_ms), self._options)

    def instant(self, text: str, time_ms: int, cancelled: Callable[[], None] = lambda: None) -> QueryResult:
        return run(self.compile(text, time_ms, time_ms, 0), self._source, cancelled)

    def range(
        self, text: str, start_ms: int, end_ms: int, step_ms: int, cancelled: Callable[[], None] = lambda: None
    ) -> QueryResult:
        return run(self.compile(text, start_ms, end_ms, step_ms), self._source, cancelled)
