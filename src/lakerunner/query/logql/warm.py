"""Kernels in memory before the first client waits for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from lakerunner.query.language import Plan, QueryOptions, StepPlan
from lakerunner.query.logql.answer import answer_batch
from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.eval import series_ids
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.pipeline import Pipeline
from lakerunner.query.scan.rows.conditions.id_runs import Ids, ids_of
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.row_group.row_counts import RowCounts
from lakerunner.query.scan.rows.row_group.rows import KeptForm, ReadableRows, Shape
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.query.series.times import QueryTimes
from lakerunner.runtime.kernels import Share

T = TypeVar("T")
_SELECTOR = '{service_name="a"}'
#: Leaves out the lines that a parser cannot read.
_READ = '| __error__=""'
#: What dashboards ask for most.
_PIPELINES = (
    '|= "a" != "b" |~ "c.+d"',
    '| json | level="error" | n > 5',
    '| logfmt | level=~"err.*" or took > 1s',
    '| regexp "(?P<first>\\\\w+)"',
    '| pattern "<first> <_>"',
    '|= ip("10.0.0.0/8")',
    '| json first="a.b[0]", level="level"',
    '|> "<_>a<_>" | decolorize',
    '| json | line_format "{{.level}} {{.n}}" | label_format size="{{.n}}"',
    "| unpack | drop level | keep n",
)
_METRICS = (
    f"sum by (level) (count_over_time({_SELECTOR}[1m]))",
    f"sum(rate({_SELECTOR} | json {_READ} [1m])) / sum(bytes_rate({_SELECTOR}[1m]))",
    f"quantile_over_time(0.9, {_SELECTOR} | logfmt {_READ} | unwrap n [1m]) by (level)",
    f"avg_over_time({_SELECTOR} | json {_READ} | unwrap duration(took) [1m])",
    f"topk(2, max_over_time({_SELECTOR} | json {_READ} | unwrap n [1m]))",
    f"rate_counter({_SELECTOR} | json {_READ} | unwrap n [1m])",
    f"sum by (level) (sum_over_time({_SELECTOR} | json {_READ} | unwrap n [1m]))",
    f'sum by (first) (count_over_time({_SELECTOR} | json first="a.b[0]" {_READ} [1m]))',
)
_COUNT = 20
_LINES = (
    '{"level": "error", "n": 7, "took": "2s", "a": {"b": ["x\\u00e9", {"c": [1]}]}, "_entry": "a b"}',
    'level=error n=7 took=2s msg="a \\" b"',
    "a c d \x1b[31mred\x1b[0m",
)


Compile = Callable[[str, QueryTimes, QueryOptions], Plan]


def shares(compile_query: Compile) -> list[Share]:
    """Each runs a usual query over a few rows. The first run ever compiles; later runs load the result."""
    return [
        *(partial(_run, text) for text in _PIPELINES),
        *(partial(_evaluate, text, compile_query) for text in _METRICS),
        series_ids.warm,
    ]


def _run(text: str) -> None:
    selector = parse(f"{_SELECTOR} {text}")
    assert isinstance(selector, LogSelector)
    pipeline = Pipeline.of(selector)
    for batch in _FewRows().rows(pipeline.scan(0, 1 << 62)):
        answer_batch(pipeline.run(pipeline.entries(batch), lambda: None))


def _evaluate(text: str, compile_query: Compile) -> None:
    for times in (QueryTimes(60_000, 240_000, 60_000), QueryTimes(240_000, 240_000, 0)):
        plan = compile_query(text, times, QueryOptions())
        assert isinstance(plan, StepPlan)
        plan.evaluate(times.steps(), _FewRows(), lambda: None, plan.options.max_samples)


class _FewRows:
    """A source of lines that every parser can read some of."""

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        return SeriesBatch.empty()

    def row_schema(self, scan: RowScan) -> pa.Schema:
        return _batch("").schema

    def rows(self, scan: RowScan, shape: Shape | None = None) -> Iterator[pa.RecordBatch]:
        return map(_batch, _LINES)

    def mapped(self, scan: RowScan, make: Callable[[ReadableRows], T], form: KeptForm[T] | None = None) -> Iterator[T]:
        for batch in self.rows(scan):
            made = make(_Rows(batch))
            yield made
            if form is not None and (kept := form.of(made)) is not None:
                yield kept


@dataclass(frozen=True, slots=True)
class _Rows:
    whole: pa.RecordBatch

    def batch(self, columns: Sequence[str] | None, *, apart: bool = False, edges: Ints | None = None) -> pa.RecordBatch:
        return self.whole

    def some(self, places: Ints) -> _Rows:
        return _Rows(self.whole.take(pa.array(places)))

    def one_time(self, column: str, edges: Ints) -> int | None:
        return None

    def counts(self, time: str, columns: Sequence[str], edges: Ints) -> RowCounts | None:
        return None

    def __len__(self) -> int:
        return int(self.whole.num_rows)

    @property
    def segment(self) -> Hashable:
        return None

    def ids(self, column: str) -> Ids:
        return ids_of(self.whole.column(column))[0]

    def remembered(self, what: Hashable, make: Callable[[], T], size_bytes: Callable[[T], int]) -> T:
        return make()


def _batch(line: str) -> pa.RecordBatch:
    times = pa.array(np.arange(_COUNT) * 15 * 10**9).cast(pa.timestamp("ns", "UTC"))
    return pa.RecordBatch.from_pydict(
        {
            "timestamp": times,
            "service_name": pa.array(["a", "b"] * (_COUNT // 2)).dictionary_encode(),
            "level": pa.array(["error"] * _COUNT).dictionary_encode(),
            "message": pa.array([line] * _COUNT),
            "attr_n": pa.array(np.arange(_COUNT)),
        }
    )
