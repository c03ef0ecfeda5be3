from __future__ import annotations

import io

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.formats.attribute_types import TYPES, AttributeTypes
from lakerunner.formats.attributes import OVERFLOW, as_text, keys_of
from lakerunner.formats.read import read_object
from lakerunner.formats.unify_tables import unify_tables
from lakerunner.model.signals import LOGS, METRICS
from tests.formats.otlp_samples import log_batches, metric_batches


def logs(*records: dict) -> dict[str, pa.Table]:
    data = b"\n".join(orjson.dumps({"ts": at, **record}) for at, record in enumerate(records, 1))
    return dict(read_object(data, LOGS, "x.json").tables)


def test_types_are_unified_and_absent_columns_are_null():
    merged = unify_tables(
        [logs({"a": 1, "b": "x"})[""], logs({"a": "y", "c": 2.5})[""], logs({"a": True})[""]], LOGS.rows
    )
    assert merged.column("attr_a").to_pylist() == ["1", "y", "true"]
    assert merged.column("attr_b").to_pylist() == ["x", None, None]
    assert merged.column("attr_c").to_pylist() == [None, 2.5, None]
    assert keys_of(merged.schema) == {"attr_a": ["a"], "attr_b": ["b"], "attr_c": ["c"]}


def test_numbers_become_double_unless_that_would_round():
    big = 2**53 + 1
    merged = unify_tables(
        [logs({"a": 1, "b": big, "c": 1}, {"c": 2.5}, {"c": big})[""], logs({"a": 2.5})[""]], LOGS.rows
    )
    assert merged.column("attr_a").to_pylist() == [1.0, None, None, 2.5]
    assert merged.column("attr_b").to_pylist() == [big, None, None, None]
    # Within one object, integers and fractions that no type holds together are text.
    assert merged.column("attr_c").to_pylist() == ["1", "2.5", str(big), None]
    assert [str(merged.schema.field(f"attr_{name}").type) for name in "abc"] == ["double", "int64", "string"]


@pytest.mark.parametrize(
    ("kind", "fits", "left"),
    [
        ("double", [1, 2.5, "7", "0.25", "-3"], ["x", "007", "1e3", "1.0", "", "nan", True, 2**53 + 1]),
        ("int64", [1, 2**60, 2.0, "7", "-3"], ["x", "007", 2.5, True, "9" * 19]),
        ("bool", [True, False, "true"], ["x", 1, 0.5, "True"]),
        ("text", ["x", 1, 2.5, True], []),
    ],
)
def test_a_known_type_stays_and_what_it_cannot_hold_goes_to_the_overflow(kind: str, fits: list, left: list):
    types = AttributeTypes({"attr_a": kind})
    tables = [logs({"a": value})[""] for value in (*fits, *left)]
    merged = unify_tables(tables, LOGS.rows, types=types)
    column = merged.column("attr_a")
    assert column.type == TYPES[kind]
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in (*fits, *left)]
    assert as_text(column.combine_chunks()).to_pylist() == [
        *(text.removesuffix(".0") for text in texts[: len(fits)]),
        *[None] * len(left),
    ]
    if left:
        assert merged.column(OVERFLOW).to_pylist()[len(fits) :] == [[("attr_a", text)] for text in texts[len(fits) :]]
    assert types.added(merged.schema, LOGS.rows.schema().names) == {}


def test_whole_numbers_have_one_text_whatever_holds_them():
    numbers = [0, 7, -(10**10), 10**10 + 1, 1_767_225_600_000, 2**53]
    as_ints, as_doubles = pa.array(numbers, pa.int64()), pa.array([float(number) for number in numbers])
    assert as_text(as_doubles).to_pylist() == as_text(as_ints).to_pylist() == [str(number) for number in numbers]
    assert as_text(pa.array([1e300, 0.1, None])).to_pylist() == ["1e+300", "0.1", None]


def test_dictionaries_and_text_are_one_column():
    encoded = read_object(next(log_batches(4)).SerializeToString(), LOGS).tables[""]
    plain = logs({"resource": {"host": {"name": "other"}}})[""]
    assert pa.types.is_dictionary(encoded.schema.field("resource_host_name").type)
    merged = unify_tables([encoded, plain], LOGS.rows)
    assert merged.column("resource_host_name").to_pylist()[-1] == "other"
    assert merged.column("resource_host_name").null_count == 0


def test_original_keys_of_all_objects_are_kept():
    merged = unify_tables([logs({"a.b": 1})[""], logs({"a_b": 2})[""]], LOGS.rows)
    assert keys_of(merged.schema) == {"attr_a_b": ["a.b", "a_b"]}


def test_the_cap_holds_and_nothing_is_lost():
    first = logs({"a": 1, "b": 2, "c": "x"})[""]
    second = logs({"a": 3, "d": True})[""]
    merged = unify_tables([first, second], LOGS.rows, cap=2)
    assert [name for name in merged.column_names if name.startswith("attr_")] == ["attr_a", "attr_b"]
    assert merged.column(OVERFLOW).to_pylist() == [[("attr_c", "x")], [("attr_d", "true")]]
    again = unify_tables([merged, first], LOGS.rows, cap=1)
    assert again.column(OVERFLOW).to_pylist() == [
        [("attr_b", "2"), ("attr_c", "x")],
        [("attr_d", "true")],
        [("attr_b", "2"), ("attr_c", "x")],
    ]


def through_parquet(table: pa.Table) -> pa.Table:
    out = io.BytesIO()
    pq.write_table(table, out)
    return pq.read_table(io.BytesIO(out.getvalue()))


def test_stale_markers_and_other_nans_survive_parquet_bit_for_bit():
    batch = next(metric_batches(48, series=48))
    for metric in batch.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.gauge.data_points:
            point.flags = 1
    samples = read_object(batch.SerializeToString(), METRICS).tables[""]
    again = through_parquet(samples)
    bits = [table.column("value").drop_null().to_numpy().view(np.uint64).tolist() for table in (samples, again)]
    assert bits[0] == bits[1]
    assert bits[0].count(0x7FF0000000000002) == 4
    assert str(again.to_pylist()) == str(samples.to_pylist())


def test_overflow_and_original_keys_survive_parquet():
    table = unify_tables([logs({"a.b": 1, "a_b": 2})[""], logs({"a-b": "x"})[""]], LOGS.rows)
    again = through_parquet(table)
    assert again.column(OVERFLOW).to_pylist() == [[("attr_a_b", "2")], None]
    assert again.column("attr_a_b").to_pylist() == ["1", "x"]
    assert keys_of(again.schema) == {"attr_a_b": ["a-b", "a.b", "a_b"]}


def test_nothing_merges_to_nothing():
    empty = read_object(b"", LOGS).tables[""]
    assert unify_tables([empty, empty], LOGS.rows).num_rows == 0
