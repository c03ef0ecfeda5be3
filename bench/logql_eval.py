"""Evaluate LogQL metric queries over entries in memory, against DuckDB over the same Arrow data.

`python -m bench.logql_eval` prints one JSON line per case: CPU milliseconds, the best of several runs, since the
machine may be shared. Both sides get columns with dictionaries, as a hot scan yields them. A case is timed only if both
give the same answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Category, Entries
from lakerunner.query.logql.eval.evaluator import evaluate
from lakerunner.query.logql.eval.source import EntryRequest
from lakerunner.query.logql.parser import parse
from lakerunner.query.series.block import Block
from lakerunner.query.vectors.context import EngineOptions

MINUTE_NS = 60_000_000_000
MINUTES = 60
#: Rows of one row group.
BATCH_ROWS = 1 << 16

Answer = dict[tuple[str, int], float]


@dataclass(frozen=True, slots=True)
class Comparison:
    name: str
    query: str
    sql: str
    #: The label that tells series of the answer apart.
    label: str = ""


#: The number of the step whose window has an entry.
VIEW = "CREATE VIEW logs AS SELECT *, (t + 59999999999) // 60000000000 AS minute FROM entries"
COMPARISONS = (
    Comparison(
        "count by level",
        'sum by (level) (count_over_time({a="b"}[1m]))',
        "SELECT level, minute, count(*) FROM logs GROUP BY ALL",
        "level",
    ),
    Comparison("count", 'sum(count_over_time({a="b"}[1m]))', "SELECT '', minute, count(*) FROM logs GROUP BY ALL"),
    Comparison(
        "count by a field of 20,000 values",
        'sum by (user) (count_over_time({a="b"}[1m]))',
        'SELECT "user", minute, count(*) FROM logs GROUP BY ALL',
        "user",
    ),
    Comparison(
        "bytes by service",
        'sum by (service) (bytes_over_time({a="b"}[1m]))',
        "SELECT service, minute, sum(strlen(line)) FROM logs GROUP BY ALL",
        "service",
    ),
    Comparison(
        "quantile of a field by level",
        'quantile_over_time(0.95, {a="b"} | unwrap took [1m]) by (level)',
        "SELECT level, minute, quantile_cont(took::DOUBLE, 0.95) FROM logs GROUP BY ALL",
        "level",
    ),
    Comparison(
        "sum of a field by service",
        'sum by (service) (sum_over_time({a="b"} | unwrap took [1m]))',
        "SELECT service, minute, sum(took::DOUBLE) FROM logs GROUP BY ALL",
        "service",
    ),
    Comparison(
        "top 10 of 20,000 values",
        'topk(10, sum by (user) (count_over_time({a="b"}[1m])))',
        """SELECT "user", minute, n FROM (SELECT "user", minute, count(*) AS n FROM logs GROUP BY ALL)
        QUALIFY row_number() OVER (PARTITION BY minute ORDER BY n DESC, "user") <= 10""",
        "user",
    ),
)


class Logs:
    """Entries in the order of time, a row group at a time."""

    def __init__(self, rows: int) -> None:
        random = np.random.default_rng(7)
        self.times = np.sort(random.integers(1, MINUTES * MINUTE_NS + 1, rows))
        self.columns = {
            "level": _column(random.choice(4, rows, p=[0.02, 0.08, 0.3, 0.6]), ["fatal", "error", "warn", "info"]),
            "service": _column(random.integers(0, 12, rows), [f"service-{number}" for number in range(12)]),
            "user": _column(random.integers(0, 20_000, rows), [f"user-{number:05d}" for number in range(20_000)]),
            "took": _column(random.integers(0, 5_000, rows), [f"{number / 10}" for number in range(5_000)]),
        }
        texts = pa.array(["x" * length for length in range(60, 160)])
        self.lines = texts.take(pa.array(random.integers(0, len(texts), rows)))

    def entries(self, request: EntryRequest) -> Iterator[Entries]:
        wanted = {
            name: column for name, column in self.columns.items() if request.names is None or name in request.names
        }
        for begin in range(0, len(self.times), BATCH_ROWS):
            columns = {(Category.METADATA, name): each.slice(begin, BATCH_ROWS) for name, each in wanted.items()}
            yield Entries(self.times[begin : begin + BATCH_ROWS], self.lines.slice(begin, BATCH_ROWS), columns)

    def table(self) -> pa.Table:
        return pa.table({"t": self.times, "line": self.lines} | self.columns)


def _column(codes: np.ndarray, values: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(values))


def answer_of(block: Block, label: str) -> Answer:
    rows, steps = block.valid.nonzero()
    names = [block.labels[row].get(label) for row in range(len(block.labels))]
    values = block.values[rows, steps].tolist()
    places = zip(rows.tolist(), steps.tolist(), strict=True)
    return {(names[row], step + 1): value for (row, step), value in zip(places, values, strict=True)}


def best_cpu_ms(call: Callable[[], object], runs: int) -> float:
    call()
    spent = []
    for _ in range(runs):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return min(spent) * 1e3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the entries")
    parser.add_argument("--rows", type=int, help="entries (default 1,000,000)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each case; the best counts")
    options = parser.parse_args(arguments)
    logs = Logs(options.rows or (100_000 if options.quick else 1_000_000))
    steps = np.arange(1, MINUTES + 1) * MINUTE_NS
    with duckdb.connect() as peer:
        peer.register("entries", logs.table())
        peer.execute(VIEW)
        for comparison in COMPARISONS:
            measure(comparison, logs, steps, peer, options.runs)


def measure(comparison: Comparison, logs: Logs, steps: np.ndarray, peer: duckdb.DuckDBPyConnection, runs: int) -> None:
    expr = parse(comparison.query)
    assert not isinstance(expr, ast.LogSelector)

    def ours() -> Block:
        return evaluate(expr, steps, logs, lambda: None, EngineOptions())

    def theirs() -> pa.Table:
        return peer.sql(comparison.sql).to_arrow_table()

    found = answer_of(ours(), comparison.label)
    expected = {(name, int(bucket)): float(value) for name, bucket, value in peer.execute(comparison.sql).fetchall()}
    assert found.keys() == expected.keys(), f"{comparison.name}: the answers have other series"
    assert np.allclose([found[key] for key in expected], list(expected.values()), rtol=1e-9), comparison.name
    value, peer_value = best_cpu_ms(ours, runs), best_cpu_ms(theirs, runs)
    line = {
        "bench": "logql_eval",
        "case": f"{comparison.name}, {len(logs.times):,} entries, {MINUTES} steps, cpu",
        "value": round(value, 2),
        "unit": "ms",
        "better": "lower",
        "peer": "DuckDB over the same Arrow data",
        "peer_value": round(peer_value, 2),
        "ratio": round(value / peer_value, 3),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
