from __future__ import annotations

import io
import random

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.formats.attributes import OVERFLOW, keys_of
from lakerunner.formats.merge import merge, sort, split_hours, unify
from lakerunner.formats.read import read_object
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.model.time import NS_PER_HOUR
from tests.formats.otlp_samples import START_NS, log_batches, metric_batches, trace_batches

BATCHES = {"logs": (LOGS, log_batches), "traces": (TRACES, trace_batches)}


def logs(*records: dict) -> dict[str, pa.Table]:
    data = b"\n".join(orjson.dumps({"ts": at, **record}) for at, record in enumerate(records, 1))
    return dict(read_object(data, LOGS, "x.json").tables)


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_rows_of_many_objects_are_all_there_and_in_order(name):
    signal, batches = BATCHES[name]
    decoded = [read_object(b.SerializeToString(), signal).tables for b in batches(900, per_batch=300, seed=3)]
    merged = merge(decoded, signal)[""]
    key = signal.rows.sort_key
    rows = [row for tables in decoded for row in tables[""].to_pylist()]
    assert merged.num_rows == 900
    assert sorted(map(str, merged.to_pylist())) == sorted(map(str, rows))
    found = list(zip(*(merged.column(column).to_pylist() for column in key), strict=True))
    assert found == sorted(found)


def test_types_are_unified_and_absent_columns_are_null():
    merged = unify([logs({"a": 1, "b": "x"})[""], logs({"a": "y", "c": 2.5})[""], logs({"a": True})[""]], LOGS.rows)
    assert merged.column("attr_a").to_pylist() == ["1", "y", "true"]
    assert merged.column("attr_b").to_pylist() == ["x", None, None]
    assert merged.column("attr_c").to_pylist() == [None, 2.5, None]
    assert keys_of(merged.schema) == {"attr_a": ["a"], "attr_b": ["b"], "attr_c": ["c"]}


def test_dictionaries_and_text_are_one_column():
    encoded = read_object(next(log_batches(4)).SerializeToString(), LOGS).tables[""]
    plain = logs({"resource": {"host": {"name": "other"}}})[""]
    assert pa.types.is_dictionary(encoded.schema.field("resource_host_name").type)
    merged = unify([encoded, plain], LOGS.rows)
    assert merged.column("resource_host_name").to_pylist()[-1] == "other"
    assert merged.column("resource_host_name").null_count == 0


def test_original_keys_of_all_objects_are_kept():
    merged = unify([logs({"a.b": 1})[""], logs({"a_b": 2})[""]], LOGS.rows)
    assert keys_of(merged.schema) == {"attr_a_b": ["a.b", "a_b"]}


def test_the_cap_holds_and_nothing_is_lost():
    first = logs({"a": 1, "b": 2, "c": "x"})[""]
    second = logs({"a": 3, "d": True})[""]
    merged = unify([first, second], LOGS.rows, cap=2)
    assert [name for name in merged.column_names if name.startswith("attr_")] == ["attr_a", "attr_b"]
    assert merged.column(OVERFLOW).to_pylist() == [[("attr_c", "x")], [("attr_d", "true")]]
    again = unify([merged, first], LOGS.rows, cap=1)
    assert again.column(OVERFLOW).to_pylist() == [
        [("attr_b", "2"), ("attr_c", "x")],
        [("attr_d", "true")],
        [("attr_b", "2"), ("attr_c", "x")],
    ]


def test_series_are_described_once():
    decoded = [read_object(b.SerializeToString(), METRICS).tables for b in metric_batches(240, series=48)]
    merged = merge(decoded, METRICS)
    assert merged[""].num_rows == sum(tables[""].num_rows for tables in decoded)
    assert merged[".series"].num_rows == decoded[0][".series"].num_rows
    for description in METRICS.tables:
        table = merged[description.suffix]
        found = list(zip(*(table.column(column).to_pylist() for column in description.sort_key), strict=True))
        assert found == sorted(found)


def test_absent_values_sort_last_and_equal_rows_stay():
    rng = random.Random(5)
    records = [{"service": rng.choice(["b", "a", None]), "n": n, "ts": 7} for n in range(50)]
    table = sort(logs(*records)[""], LOGS.rows)
    wanted = sorted(records, key=lambda r: (r["service"] is None, r["service"] or ""))
    assert table.column("attr_n").to_pylist() == [record["n"] for record in wanted]


def test_hours_part_the_rows():
    start = START_NS - START_NS % NS_PER_HOUR
    times = [start + NS_PER_HOUR * 14, start + 1, start + NS_PER_HOUR - 1, start + NS_PER_HOUR]
    hours = split_hours(merge([logs(*({"ts": at, "n": i} for i, at in enumerate(times)))], LOGS), LOGS)
    assert [(h.dateint, h.hour, h.tables[""].column("attr_n").to_pylist()) for h in hours] == [
        (20251115, 9, [1, 2]),
        (20251115, 10, [3]),
        (20251115, 23, [0]),
    ]


def test_hours_of_metrics_take_their_series_along():
    data = b"timestamp,name,value,host\n1763200000,load,1,a\n1763203600,load,2,a\n1763203600,load,3,b\n"
    hours = split_hours(merge([read_object(data, METRICS, "m.csv").tables], METRICS), METRICS)
    assert [(h.tables[""].num_rows, h.tables[".series"].num_rows) for h in hours] == [(1, 1), (2, 2)]


def through_parquet(table: pa.Table) -> pa.Table:
    out = io.BytesIO()
    pq.write_table(table, out)
    return pq.read_table(io.BytesIO(out.getvalue()))


def test_stale_markers_and_other_nans_survive_parquet_bit_for_bit():
    batch = next(metric_batches(48, series=48))
    for metric in batch.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.gauge.data_points:
            point.flags = 1
    samples = merge([read_object(batch.SerializeToString(), METRICS).tables], METRICS)[""]
    again = through_parquet(samples)
    bits = [table.column("value").drop_null().to_numpy().view(np.uint64).tolist() for table in (samples, again)]
    assert bits[0] == bits[1]
    assert bits[0].count(0x7FF0000000000002) == 4
    assert str(again.to_pylist()) == str(samples.to_pylist())


def test_overflow_and_original_keys_survive_parquet():
    table = merge([logs({"a.b": 1, "a_b": 2}), logs({"a-b": "x"})], LOGS)[""]
    again = through_parquet(table)
    assert again.column(OVERFLOW).to_pylist() == [[("attr_a_b", "2")], None]
    assert again.column("attr_a_b").to_pylist() == ["1", "x"]
    assert keys_of(again.schema) == {"attr_a_b": ["a-b", "a.b", "a_b"]}


def test_nothing_merges_to_nothing():
    empty = read_object(b"", LOGS).tables
    assert merge([empty, empty], LOGS)[""].num_rows == 0
    assert split_hours(merge([empty], LOGS), LOGS) == []
