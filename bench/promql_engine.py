"""PromQL queries over series in memory, against one plain pass over the same bytes.

It prints one JSON line per case. `peer` is the physical limit of the case; `ratio` is value / peer_value.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.language import LANGUAGE
from lakerunner.query.run import run
from lakerunner.query.series.batch import SeriesBatch, SeriesSource
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions

POINTS, SCRAPE_MS = 360, 15_000
STEPS = 60
END_MS = POINTS * SCRAPE_MS


def counters(series: int) -> MemorySource:
    random = np.random.default_rng(7)
    source = MemorySource()
    times = np.arange(POINTS) * SCRAPE_MS
    for i in range(series):
        labels = {"__name__": "requests_total", "job": f"job-{i % 20}", "instance": f"10.0.{i // 250}.{i % 250}"}
        source.add(LabelSet.of(labels), times, np.cumsum(random.poisson(3, POINTS)).astype(np.float64))
    return source


def histograms(series: int) -> MemorySource:
    random = np.random.default_rng(7)
    source = MemorySource()
    times = np.arange(60) * SCRAPE_MS
    for i in range(series):
        index = np.arange(20 + i % 21, dtype=np.int64)
        counts = np.cumsum(random.poisson(2, (60, len(index))), axis=0).astype(np.float64)
        samples = [
            Histogram(schema=2, count=float(row.sum()), sum=float(row.sum()), pos_index=index, pos_count=row)
            for row in counts
        ]
        labels = LabelSet.of({"__name__": "latency", "job": f"job-{i % 20}", "instance": str(i)})
        source.add(labels, times, np.zeros(60), histograms=samples)
    return source


class Scanned:
    """A source whose scan is already done, so that only the engine is measured."""

    def __init__(self, source: MemorySource) -> None:
        self._batch = source.select([], 0, END_MS)

    def select(self, matchers: object, start_ms: int, end_ms: int, reading: object = None) -> SeriesBatch:
        return self._batch


def evaluated(source: SeriesSource, text: str, start_ms: int, end_ms: int, step_ms: int) -> QueryResult:
    plan = LANGUAGE.compile(text, QueryTimes(start_ms, end_ms, step_ms), EngineOptions())
    return run(plan, source, lambda: None)


def best_of(call: Callable[[], object], times: int = 5) -> float:
    call()
    found = []
    for _ in range(times):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
    return min(found) * 1000


def report(case: str, value: float, peer: str, peer_value: float) -> None:
    line = {
        "bench": "promql_engine",
        "case": case,
        "value": round(value, 3),
        "unit": "ms CPU",
        "better": "lower",
        "peer": peer,
        "peer_value": round(peer_value, 3),
        "ratio": round(value / peer_value, 2),
    }
    sys.stdout.write(json.dumps(line) + "\n")


def one_pass(source: MemorySource) -> float:
    """Measure one read of every timestamp and value with numpy: nothing that reads all samples can be faster."""
    batch = source.select([], 0, END_MS)
    column = batch.histograms
    values = batch.values if column is None else column.pos_count
    return best_of(lambda: (batch.timestamps_ms.sum(), values.sum()))


QUERIES = (
    "sum by (job) (rate(requests_total[5m]))",
    "requests_total",
    "sum(requests_total)",
    "max_over_time(requests_total[5m])",
    "quantile_over_time(0.9, requests_total[5m])",
    "topk(5, rate(requests_total[5m]))",
    "requests_total / on (instance, job) requests_total",
    "sum by (job) (rate(requests_total[5m])) / ignoring (job) group_left sum(rate(requests_total[5m]))",
)
NATIVE_QUERIES = (
    "latency",
    "rate(latency[5m])",
    "sum by (job) (rate(latency[5m]))",
    "histogram_quantile(0.99, sum by (job) (rate(latency[5m])))",
    "histogram_quantile(0.99, rate(latency[5m]))",
    "histogram_count(rate(latency[5m]))",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the series")
    size = 1 if parser.parse_args().quick else 10
    source = counters(size * 1_000)
    limit, scanned = one_pass(source), Scanned(source)
    value = best_of(lambda: evaluated(scanned, QUERIES[0], END_MS // 2, END_MS, END_MS // 2 // STEPS))
    report(f"{QUERIES[0]}, the scan not counted", value, "one numpy pass", limit)
    for query in QUERIES:
        value = best_of(lambda query=query: evaluated(source, query, END_MS // 2, END_MS, END_MS // 2 // STEPS))
        report(f"{query}, {size}k series x {POINTS} points x {STEPS} steps", value, "one numpy pass", limit)
    previous = 0.0
    for number in (size * 125, size * 250, size * 500, size * 1_000):
        some = counters(number)
        value = best_of(lambda some=some: evaluated(some, QUERIES[0], END_MS // 2, END_MS, END_MS // 2 // STEPS))
        if previous:
            report(f"{QUERIES[0]}, {number} series", value, "half as many series", previous)
        previous = value
    source = histograms(size * 100)
    limit, scanned = one_pass(source), Scanned(source)
    for query in NATIVE_QUERIES:
        value = best_of(lambda query=query: evaluated(scanned, query, 300_000, 900_000, 10_000))
        report(f"{query}, {size * 100} native histogram series x 60 points x 61 steps", value, "one numpy pass", limit)


if __name__ == "__main__":
    main()
