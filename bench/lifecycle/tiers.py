"""A month of PromQL by tiers, against the same query over raw samples; at 1, 2 and 4 times the series.

Raw samples and tiers are written with our own writer, one segment per day, as compaction and rollup leave a month
that is over. Both ways run in this process, hot, and their answers are compared first. One JSON line per figure.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.migrate import migrate
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.errors import LakeError
from lakerunner.model.ids import fresh_id
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES
from lakerunner.model.signals.tiers import TIER_METRICS
from lakerunner.model.time import NS_PER_MS
from lakerunner.pipeline.rollup.roll_up import roll_up_tiers
from lakerunner.query.lake import Lake, open_lake
from lakerunner.query.promql.language import LANGUAGE
from lakerunner.query.run import run
from lakerunner.query.series.results import MatrixResult, QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions
from lakerunner.runtime.settings import DataSettings, IndexSettings, QuerySettings, Settings
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of
from lakerunner.store.table_writer import SETTLED_LEVEL

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SCRAPE_MS = 15_000
START_MS = 20_000 * DAY_MS
TIERS_S = (3_600, 86_400)
NAME = "requests_total"
QUERIES = (
    ("rate", f"sum by (job) (rate({NAME}[1h]))", HOUR_MS),
    ("max", f"max by (job) (max_over_time({NAME}[1h]))", HOUR_MS),
    ("selector", f"sum by (job) ({NAME})", HOUR_MS),
    ("increase per day", f"sum by (job) (increase({NAME}[1d]))", DAY_MS),
)
#: The share of the raw query's CPU time, and the seconds, that a month by tiers may take.
MOST_SHARE, MOST_S = 0.05, 1.0


class Month:
    """A lake in a folder of its own, with one org per size."""

    def __init__(self, folder: Path, url: str, days: int) -> None:
        # Raw samples of the largest size stay decoded too: both sides are hot.
        query = QuerySettings(decoded_cache_bytes=4 << 30)
        settings = Settings(data=DataSettings(dir=folder), index=IndexSettings(url=url), query=query)
        self.days = days
        self.database = Database(url)
        _migrate(self.database)
        self.store: ObjectStore = open_store(StoreConfig.of(settings))
        self.lake: Lake = open_lake(settings, self.database, own_scans="bench")

    def close(self) -> None:
        self.lake.close()
        self.database.close()

    def write(self, series: int) -> uuid.UUID:
        """Counters with a few resets, day by day."""
        org_id = uuid.uuid4()
        rng = np.random.default_rng(series)
        labels = [
            LabelSet.of({METRIC_NAME: NAME, "job": f"job-{number % 20}", "instance": str(number)})
            for number in range(series)
        ]
        labels.sort(key=LabelSet.tid)
        tids = np.array([each.tid() for each in labels], np.int64)
        described = pa.Table.from_pylist(
            [
                {
                    "tid": int(tid), "metric_name": NAME, "type": "counter", "temporality": "cumulative",
                    "labels": list(each.without(METRIC_NAME)),
                }
                for tid, each in zip(tids, labels, strict=True)
            ],
            schema=SERIES.schema(),
        )  # fmt: skip
        points = DAY_MS // SCRAPE_MS
        reached = np.zeros(series)
        segments = []
        for day in range(self.days):
            values = reached[:, np.newaxis] + np.cumsum(rng.poisson(3, (series, points)), axis=1)
            restarted = rng.random(series) < 0.1
            values[restarted, points // 2 :] -= values[restarted, points // 2, np.newaxis]
            reached = values[:, -1]
            times = START_MS + day * DAY_MS + (np.arange(points) + 1) * SCRAPE_MS
            raw = _samples(tids, np.tile(times, series), values.ravel(), points)
            segments.append(self._put(org_id, METRICS, RAW_TIER_S, raw, described))
            for tier_s, table in roll_up_tiers(raw, TIERS_S).items():
                segments.append(self._put(org_id, TIER_METRICS, tier_s, table, described))
        item_id = uuid.uuid4()
        with self.database.transaction() as tx:
            create_item(tx, WorkItem(item_id, "ingest", org_id, METRICS.name))
        assert commit_item(self.database, ItemResult(item_id, made=segments)) is Outcome.COMMITTED
        self._make_clean(org_id)
        return org_id

    def _put(self, org_id: uuid.UUID, signal: Signal, tier_s: int, rows: pa.Table, series: pa.Table) -> Segment:
        files = encode_tables(signal, {SAMPLES.suffix: rows, SERIES.suffix: series}, SETTLED_LEVEL)
        segment = segment_of(
            METRICS, describe(METRICS, rows), segment_id=fresh_id(), org_id=org_id, collector="bench", tier_s=tier_s,
            size_bytes=sum(file.size for file in files), level=1,
        )  # fmt: skip
        for key, file in zip(keys.segment_keys(segment), files, strict=True):
            self.store.put(key, memoryview(file))
        return segment

    def _make_clean(self, org_id: uuid.UUID) -> None:
        with self.database.transaction() as tx:
            tx.execute("DELETE FROM rollup_window WHERE org_id = %s", [org_id])
            for tier_s in TIERS_S:
                for day in range(self.days):
                    start_ns = (START_MS + day * DAY_MS) * NS_PER_MS
                    tx.execute(
                        "INSERT INTO rollup_window (org_id, tier_s, start_ns, end_ns, made_generation, dirty)"
                        " VALUES (%s, %s, %s, %s, 1, false)",
                        [org_id, tier_s, start_ns, start_ns + DAY_MS * NS_PER_MS],
                    )

    def ask(self, org_id: uuid.UUID, text: str, step_ms: int, max_tier_s: int) -> tuple[QueryResult, float, float, int]:
        """The answer, its CPU and wall seconds, and the rows read."""
        times = QueryTimes(START_MS + step_ms, START_MS + self.days * DAY_MS, step_ms)
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        source = self.lake.query(org_id)
        plan = LANGUAGE.compile(text, times, EngineOptions(max_tier_s=max_tier_s, max_samples=10**9))
        source.prepare(plan.leaves)
        result = run(plan, source, lambda: None)
        return result, time.process_time() - cpu_s, time.perf_counter() - wall_s, source.stats.rows


def _migrate(database: Database) -> None:
    end_s = time.monotonic() + 30
    while True:
        try:
            migrate(database)
            return
        except LakeError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)


def _samples(tids: np.ndarray, times: np.ndarray, values: np.ndarray, points: int) -> pa.Table:
    columns = {
        "metric_name": pa.array([NAME]).take(pa.array(np.zeros(len(times), np.int64))),
        "tid": pa.array(np.repeat(tids, points)),
        "timestamp": pa.array(times),
        "value": pa.array(values),
    }
    arrays = [
        columns[column.name].cast(column.type) if column.name in columns else pa.nulls(len(times), column.type)
        for column in SAMPLES.columns
    ]
    return pa.Table.from_arrays(arrays, schema=SAMPLES.schema())


def _check_same(left: QueryResult, right: QueryResult) -> None:
    assert isinstance(left.value, MatrixResult) and isinstance(right.value, MatrixResult)
    for one, other in zip(left.value.series, right.value.series, strict=True):
        assert one.labels == other.labels
        assert one.timestamps_ms.tolist() == other.timestamps_ms.tolist()
        assert one.values.tolist() == other.values.tolist(), one.labels


def measure(quick: bool) -> Iterator[str]:
    """One line per query and size: CPU seconds by tiers beside those over raw samples."""
    days, sizes, rounds = (10, (10, 20, 40), 3) if quick else (30, (100, 200, 400), 5)
    with tempfile.TemporaryDirectory(prefix="tiers-bench-") as folder:
        postgres = EmbeddedPostgres(Path(folder))
        process = postgres.spawn(Path(folder) / "postgres.log")
        month = Month(Path(folder), postgres.url, days)
        try:
            for series in sizes:
                org_id = month.write(series)
                for name, text, step_ms in QUERIES:
                    yield from _lines(month, org_id, f"{name}, {series} series x {days} d", text, step_ms, rounds)
        finally:
            month.close()
            postgres.stop()
            process.wait()


def _lines(month: Month, org_id: uuid.UUID, case: str, text: str, step_ms: int, rounds: int) -> Iterator[str]:
    tiered, *_ = month.ask(org_id, text, step_ms, 86_400)
    raw, *_ = month.ask(org_id, text, step_ms, 0)
    _check_same(raw, tiered)
    both = [(month.ask(org_id, text, step_ms, 86_400), month.ask(org_id, text, step_ms, 0)) for _ in range(rounds)]
    ours, theirs = zip(*both, strict=True)
    figures = [
        ("cpu", 1, "s", MOST_SHARE),
        ("wall, hot", 2, "s", None),
        ("rows", 3, "rows", None),
    ]
    for what, at, unit, most in figures:
        value, peer_value = (statistics.median(float(each[at]) for each in side) for side in (ours, theirs))
        line = {
            "bench": "lifecycle/tiers",
            "case": f"{case}: {what}",
            "value": round(value, 4),
            "unit": unit,
            "better": "lower",
            "peer": "the same query over raw samples",
            "peer_value": round(peer_value, 4),
            "ratio": round(value / peer_value, 4),
        }
        if most is not None:
            line["most"] = most
        yield json.dumps(line)


if __name__ == "__main__":
    for line in measure("--quick" in sys.argv):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
