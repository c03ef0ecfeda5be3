"""The facts of a finished simulation: rows sent and found, segments by level and tier, sizes, lookup times."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.index.database import Connection, Database
from lakerunner.index.lookup import Want, find
from lakerunner.index.segments import live_segments
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, TimeRange
from lakerunner.ops.simulate.workload import ROW_METRIC, Workload
from lakerunner.runtime.metrics import STAGE_BYTES
from lakerunner.store.keys import segment_keys
from lakerunner.store.object_store import ObjectStore

Integers = npt.NDArray[np.int64]
_LOOKUPS = 300
#: Of a segment. A sample at midnight belongs to the day before in tiers.
_DAY = "(start_ns - CASE WHEN tier_s > 0 THEN 1 ELSE 0 END) / %(day)s"
_ROW_COLUMN = "attr_simulate_row"


@dataclass(frozen=True, slots=True)
class RowCount:
    """The rows of one signal: those sent, those in live segments, and how these differ."""

    sent: int
    live: int
    distinct: int
    lost: int
    doubled: int
    foreign: int

    @property
    def exact(self) -> bool:
        return self.sent == self.live == self.distinct and not self.foreign


def count_rows(
    database: Database, store: ObjectStore, workload: Workload, sent: Mapping[str, int]
) -> dict[str, RowCount]:
    """Read the number of every live row from the files, org by org, and compare with the numbers sent."""
    counts = {}
    for signal in workload.signals:
        expected = sent[signal] // workload.orgs
        live = distinct = lost = doubled = foreign = 0
        for org_id in workload.org_ids():
            with database.transaction() as tx:
                segments = live_segments(tx, org_id, signal, TimeRange(0, 1 << 62))
            found = np.zeros(expected, np.int64)
            for numbers in _row_numbers(store, segments):
                inside = numbers[(numbers >= 0) & (numbers < expected)]
                foreign += len(numbers) - len(inside)
                found += np.bincount(inside, minlength=expected)
            live += int(found.sum())
            distinct += int((found > 0).sum())
            doubled += int((found > 1).sum())
            lost += int((found == 0).sum())
        counts[signal] = RowCount(sent[signal], live, distinct, lost, doubled, foreign)
    return counts


def _row_numbers(store: ObjectStore, segments: list[Segment]) -> Iterator[Integers]:
    for segment in segments:
        source = pa.BufferReader(store.get(segment_keys(segment)[0]))
        if segment.signal != "metrics":
            yield _integers(pq.read_table(source, columns=[_ROW_COLUMN]).column(0))
            continue
        table = pq.read_table(source, columns=["metric_name", "value"])
        # Resources may make samples of `target_info` besides.
        rows = table.filter(pc.equal(table.column("metric_name"), ROW_METRIC))
        yield _integers(rows.column("value"))


def _integers(numbers: pa.ChunkedArray) -> Integers:
    # A row without a number becomes -1, and so a foreign row.
    integers: Integers = pc.fill_null(numbers, -1).cast(pa.int64()).to_numpy()
    return integers


@dataclass(frozen=True, slots=True)
class SegmentsPerDay:
    """The live segments of one org and day at one signal, tier and level."""

    signal: str
    tier_s: int
    level: int
    org_days: int
    mean: float
    max: int


def segments_per_org_day(tx: Connection) -> list[SegmentsPerDay]:
    rows = tx.execute(
        "SELECT signal, tier_s, level, count(*) AS org_days, avg(n)::float8 AS mean, max(n) AS max FROM"  # noqa: S608
        " (SELECT org_id,"
        f" signal, tier_s, level, {_DAY} AS day, count(*) AS n FROM segment WHERE state = 'live'"
        " GROUP BY org_id, signal, tier_s, level, day) AS days GROUP BY signal, tier_s, level"
        " ORDER BY signal, tier_s, level",
        {"day": NS_PER_DAY},
    ).fetchall()
    return [SegmentsPerDay(**row) for row in rows]


def most_per_org_day(tx: Connection) -> dict[str, int]:
    """The largest number of live segments that one org has for one day: raw of all signals, and with all tiers."""
    row = tx.execute(
        "SELECT coalesce(max(raw), 0) AS raw, coalesce(max(n), 0) AS all_tiers FROM (SELECT count(*) AS n,"  # noqa: S608
        f" count(*) FILTER (WHERE tier_s = %(raw)s) AS raw FROM segment WHERE state = 'live' GROUP BY org_id, {_DAY})"
        " AS days",
        {"raw": RAW_TIER_S, "day": NS_PER_DAY},
    ).fetchone()
    assert row is not None
    return dict(row)


def bytes_by_stage() -> Counter[str]:
    """Bytes of segments that each stage has committed in this process."""
    written: Counter[str] = Counter()
    for family in STAGE_BYTES.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                written[sample.labels["stage"]] = int(sample.value)
    return written


def write_amplification(written: Mapping[str, int]) -> float | None:
    """Bytes of all segments ever written, divided by the bytes of those that ingest wrote."""
    first = written.get("ingest", 0)
    return sum(written.values()) / first if first else None


def index_sizes(tx: Connection) -> dict[str, int]:
    """Bytes of each table of the index with its indexes; partitions count for their parent."""
    rows = tx.execute(
        "SELECT coalesce(parent.relname, c.relname) AS name, sum(pg_total_relation_size(c.oid))::bigint AS bytes"
        " FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class parent"
        " ON parent.oid = i.inhparent WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace"
        " GROUP BY 1 HAVING sum(pg_total_relation_size(c.oid)) > 0 ORDER BY 2 DESC"
    ).fetchall()
    return {row["name"]: row["bytes"] for row in rows}


def lookup_ms(database: Database, workload: Workload) -> dict[str, float]:
    """Percentiles of the time to find the segments of an hour, and of everything, as a query does."""
    chance = random.Random(workload.seed)
    org_ids = workload.org_ids()

    def timed(signal: str, org_id: uuid.UUID, time_range: TimeRange) -> float:
        started = time.perf_counter()
        database.read(lambda tx: find(tx, org_id, [Want(signal, time_range)]))
        return (time.perf_counter() - started) * 1000

    hours, whole = [], []
    everything = TimeRange(workload.start_ns, workload.start_ns + workload.days * NS_PER_DAY)
    for _ in range(_LOOKUPS):
        org_id, signal = chance.choice(org_ids), chance.choice(workload.signals)
        start_ns = workload.start_ns + chance.randrange(workload.days * 24) * NS_PER_HOUR
        hours.append(timed(signal, org_id, TimeRange(start_ns, start_ns + NS_PER_HOUR)))
        whole.append(timed(signal, org_id, everything))
    return {
        f"{name} {label}": round(float(np.percentile(times, share)), 3)
        for name, times in (("hour", hours), ("all days", whole))
        for label, share in (("p50", 50), ("p99", 99))
    }
