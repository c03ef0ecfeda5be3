"""Deleted rows are gone at once and for good from every kind of answer: as over data that never had them."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.index.deletions import find_deletion
from lakerunner.model.ids import fresh_id
from lakerunner.model.labels import LabelSet
from lakerunner.model.signal import Signal
from lakerunner.model.signals.logs import LOGS
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES
from lakerunner.model.signals.traces import TRACES
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.delete.still_counted import still_counted
from lakerunner.query import metadata
from lakerunner.query.language import QueryOptions, RowPlan
from lakerunner.query.languages import language
from lakerunner.query.promql.deletable import series_matchers
from lakerunner.query.run import run
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.times import QueryTimes
from lakerunner.store import keys
from lakerunner.store.segment_writer import describe, encode_tables, segment_of
from tests.pipeline.delete import deleting
from tests.query.lake_of_series import LakeOfSeries, lake_of_series, samples_table, series_table

S, MINUTE_MS = 10**9, 60_000
Row = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path, database_url: str) -> Iterator[LakeOfSeries]:
    with lake_of_series(tmp_path, database_url) as made:
        yield made


def put(lake: LakeOfSeries, org_id: uuid.UUID, signal: Signal, rows: list[Row], extra: dict[str, pa.DataType]) -> None:
    """The rows in three segments, one after the other in time and overlapping."""
    schema = signal.rows.schema()
    for name, kind in extra.items():
        schema = schema.append(pa.field(name, kind))
    made = []
    for part in (rows[0::3], rows[1::3], rows[2::3]):
        if not part:
            continue
        table = pa.Table.from_pylist(part, schema=schema)
        table = table.sort_by([(name, "ascending") for name in signal.rows.sort_key])
        (body,) = encode_tables(signal, {"": table})
        about = describe(signal, table)
        segment = segment_of(signal, about, segment_id=fresh_id(), org_id=org_id, collector="t", size_bytes=body.size)
        (key,) = keys.segment_keys(segment)
        lake.store.put(key, memoryview(body))
        made.append(segment)
    if made:
        lake.commit(org_id, made)


def check(
    lake: LakeOfSeries,
    signal: Signal,
    write: Callable[[list[Row]], uuid.UUID],
    rows: list[Row],
    selector: str,
    goes: Callable[[Row], bool],
    ask: Callable[[uuid.UUID], Any],
) -> None:
    """Hidden while the deletion runs, gone afterwards; and a second deletion finds nothing."""
    left = [row for row in rows if not goes(row)]
    assert 0 < len(left) < len(rows)
    org_id = write(rows)
    before, expected = ask(org_id), ask(write(left))
    assert before != expected
    deletion_id = deleting.request(lake.database, org_id, signal.name, selector, 0, 10_000 * S)
    assert ask(org_id) == expected, "hidden"
    deleting.work_off(lake.settings, lake.database)
    assert ask(org_id) == expected, "rewritten"
    done = deleting.found(lake.database, org_id, deletion_id)
    assert done.rows_deleted == len(rows) - len(left)
    again = deleting.request(lake.database, org_id, signal.name, selector, 0, 10_000 * S)
    deleting.work_off(lake.settings, lake.database)
    assert deleting.found(lake.database, org_id, again).rows_deleted == 0


def spans(seed: int) -> list[Row]:
    chosen = random.Random(seed)
    return [
        {
            "trace_id": f"{trace + 1:032x}", "span_id": f"{trace + 1:08x}{number + 1:08x}",
            "parent_span_id": f"{trace + 1:08x}{chosen.randint(1, number):08x}" if number else None,
            "name": chosen.choice(["get", "put"]), "kind": "server", "status_code": "unset",
            "start_timestamp": (trace * 60 + number) * S + chosen.randint(0, 999),
            "duration_ns": 10**7 * number + 5, "service_name": chosen.choice(["cart", "shop"]),
            "attr_user": chosen.choice(["u1", "u2", None]),
        }
        for trace in range(12)
        for number in range(chosen.randint(1, 5))
    ]  # fmt: skip


def test_traces(lake: LakeOfSeries) -> None:
    """Search, structure, metrics of traces, traces by id and rows."""
    searches = ["{}", '{ name = "get" }', "{} > {}", '{ span.user = "u1" } | count() > 1', "{ duration > 9ms }"]

    def write(rows: list[Row]) -> uuid.UUID:
        org_id = uuid.uuid4()
        put(lake, org_id, TRACES, rows, {"attr_user": pa.string()})
        return org_id

    def ask(org_id: uuid.UUID) -> Any:
        traceql, found = language("traceql"), []
        for text in searches:
            plan = traceql.compile(text, QueryTimes.of_ns(0, 10_000 * S, 0), QueryOptions(limit=100))
            assert isinstance(plan, RowPlan)
            batches = list(lake.lake.query(org_id).rows(plan))
            texts = [text for batch in batches for text in batch.column("document").to_pylist()]
            found.append(sorted(json.dumps(json.loads(each), sort_keys=True) for each in texts))
        metric = traceql.compile("{} | rate() by (name)", QueryTimes(0, 900_000, MINUTE_MS), QueryOptions())
        found.append(_matrix(run(metric, lake.lake.query(org_id), lambda: None)))
        for number in (1, 5, 12):
            trace_id = f"{number:032x}"
            located = lake.lake.holding(org_id, "traces", TimeRange(0, 10_000 * S), trace_id)
            plan = language("traces").compile(trace_id, QueryTimes.of_ns(0, 10_000 * S, 0), QueryOptions(limit=100))
            assert isinstance(plan, RowPlan)
            read = lake.lake.query(org_id, only=located.segments).rows(plan)
            found.append(sorted(each for batch in read for each in batch.column("span_id").to_pylist()))
        return found

    check(
        lake, TRACES, write, spans(3), '{service_name="cart", user="u1"}',
        lambda row: row["service_name"] == "cart" and row["attr_user"] == "u1", ask,
    )  # fmt: skip


def test_log_metrics_and_entries(lake: LakeOfSeries) -> None:
    chosen = random.Random(5)
    rows = [
        {
            "timestamp": chosen.randint(0, 900) * S + chosen.randint(0, 10**9 - 1),
            "service_name": chosen.choice(["cart", "shop"]),
            "message": json.dumps({"amount": chosen.randint(1, 99), "user": chosen.choice(["u1", "u2"])}),
            "attr_pod": chosen.choice(["p1", "p2"]),
        }
        for _ in range(60)
    ]
    queries = [
        'sum by (service_name) (count_over_time({service_name=~".+"}[5m]))',
        'sum by (user) (rate({service_name=~".+"} | json [5m]))',
        'quantile_over_time(0.9, {service_name=~".+"} | json | unwrap amount [5m]) by (service_name)',
        'bytes_over_time({service_name="cart"}[5m])',
        'topk(1, sum by (pod) (count_over_time({service_name=~".+"} |= "u2" [5m])))',
        'absent_over_time({service_name="cart"}[1m])',
    ]

    def write(rows: list[Row]) -> uuid.UUID:
        org_id = uuid.uuid4()
        put(lake, org_id, LOGS, rows, {"attr_pod": pa.string()})
        return org_id

    def ask(org_id: uuid.UUID) -> Any:
        logql, found = language("logql"), []
        for text in queries:
            plan = logql.compile(text, QueryTimes(300_000, 900_000, MINUTE_MS), QueryOptions())
            found.append(_matrix(run(plan, lake.lake.query(org_id), lambda: None)))
        for newest_first in (True, False):
            options = QueryOptions(limit=20, newest_first=newest_first)
            plan = logql.compile('{service_name=~".+"} | json', QueryTimes.of_ns(0, 900 * S, 0), options)
            assert isinstance(plan, RowPlan)
            read = list(lake.lake.query(org_id).rows(plan))
            found.append([str(row) for batch in read for row in batch.select([0, 1]).to_pylist()])
        return found

    check(
        lake, LOGS, write, rows, '{service_name="cart"} |= "u1"',
        lambda row: row["service_name"] == "cart" and "u1" in row["message"], ask,
    )  # fmt: skip


def _matrix(result: Any) -> list[tuple[str, list[int], list[float]]]:
    found = result.value.series
    return [(str(one.labels), one.timestamps_ms.tolist(), one.values.tolist()) for one in found]


def test_histograms_and_exemplars(lake: LakeOfSeries) -> None:
    chosen = random.Random(9)
    names = [(name, pod) for name in ("native", "classic") for pod in ("a", "b", "c")]
    rows = [{"name": name, "pod": pod, "minute": minute} for name, pod in names for minute in range(0, 15)]
    counts = {(each["name"], each["pod"], each["minute"]): chosen.randint(0, 9) for each in rows}

    def histogram(name: str, pod: str, minute: int) -> Histogram:
        number = float(sum(counts[name, pod, each] for each in range(minute + 1)))
        buckets = np.array([number, 2 * number, 1.0])
        if name == "native":
            return Histogram(
                schema=2, count=float(buckets.sum()), sum=number, pos_index=np.arange(3), pos_count=buckets
            )
        return Histogram(
            schema=CUSTOM_SCHEMA, count=float(buckets.sum()), sum=number, bounds=np.array([1.0, 2.0]),
            pos_index=np.arange(3), pos_count=buckets,
        )  # fmt: skip

    def write(rows: list[Row]) -> uuid.UUID:
        org_id, loaded = uuid.uuid4(), MemorySource()
        for name, pod in names:
            minutes = [row["minute"] for row in rows if (row["name"], row["pod"]) == (name, pod)]
            if minutes:
                hists = [histogram(name, pod, minute) for minute in minutes]
                labels = LabelSet.of({"__name__": name, "pod": pod})
                times = np.array(minutes) * MINUTE_MS + 1_000
                loaded.add(labels, times, np.zeros(len(times)), histograms=hists)
        series = list(loaded._series.values())
        samples = samples_table(series)
        at = samples.column_names.index("exemplars")
        traces = [
            [{"timestamp": time, "value": 1.5, "trace_id": f"{tid}-{time}"}]
            for tid, time in zip(
                samples.column("tid").to_pylist(), samples.column("timestamp").to_pylist(), strict=True
            )
        ]
        field = samples.schema.field(at)
        samples = samples.set_column(at, field, pa.array(traces, field.type))
        tables = {SAMPLES.suffix: samples, SERIES.suffix: series_table(series, "cumulative")}
        lake.commit(org_id, [lake.put_tables(org_id, tables)])
        return org_id

    queries = [
        "histogram_quantile(0.9, sum by (pod) (rate(native[5m])))",
        "histogram_quantile(0.9, sum by (le) (rate(classic_bucket[5m])))",
        "sum by (pod) (increase(classic_count[5m]))",
        "count(native)",
    ]

    def ask(org_id: uuid.UUID) -> Any:
        promql, found = language("promql"), []
        for text in queries:
            plan = promql.compile(text, QueryTimes(5 * MINUTE_MS, 15 * MINUTE_MS, MINUTE_MS), QueryOptions())
            source = lake.lake.query(org_id)
            source.prepare(plan.leaves)
            found.append(_matrix(run(plan, source, lambda: None)))
        everything = [series_matchers('{__name__=~".+"}')]
        source = lake.lake.query(org_id)
        times = 0, 20 * MINUTE_MS
        found.append([str(each) for each in metadata.exemplars(source, everything, *times)])
        found.append([str(each) for each in metadata.series(source, everything, *times)])
        found.append(metadata.label_values(source, "pod", [], *times))
        return found

    check(
        lake, METRICS, write, rows, '{pod="b"}', lambda row: row["pod"] == "b", ask,
    )  # fmt: skip
    check(
        lake, METRICS, write, rows, 'native{pod=~"a|c"}',
        lambda row: row["name"] == "native" and row["pod"] != "b", ask,
    )  # fmt: skip


def test_the_receipt_names_derived_metrics_that_still_count_the_rows(lake: LakeOfSeries) -> None:
    org_id, loaded = uuid.uuid4(), MemorySource()
    for name, minute in (("traces_spanmetrics_calls_total", 5), ("traces_service_graph_request_total", 10**5)):
        loaded.add(LabelSet.of({"__name__": name}), [minute * MINUTE_MS], [1.0])
    for each in loaded._series.values():
        lake.commit(org_id, [lake.put(org_id, [each])])
    put(lake, org_id, TRACES, spans(3), {"attr_user": pa.string()})
    of_spans = deleting.request(lake.database, org_id, "traces", '{service_name="cart"}', 0, 600 * S)
    of_samples = deleting.request(lake.database, org_id, "metrics", "{__name__=~'.+'}", 0, 60 * S)
    with lake.database.transaction() as tx:
        (named,) = still_counted(tx, find_deletion(tx, org_id, of_spans))
        assert still_counted(tx, find_deletion(tx, org_id, of_samples)) == []
        assert named["metric"] == "traces_spanmetrics_calls_total", "the other one has no samples in that time"
        assert "until it is made again" in named["note"] and "deleteWith" not in named
        tx.execute("UPDATE derived_window SET state = 'kept', reason = 'spans have expired'")
        (named,) = still_counted(tx, find_deletion(tx, org_id, of_spans))
    assert "cannot be made again: spans have expired" in named["note"]
    assert named["deleteWith"] == (
        "lakerunner delete --signal metrics --match 'traces_spanmetrics_calls_total' --from 1970-01-01T00:00:00Z "
        "--to 1970-01-01T00:10:00Z --org …"
    )
