from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from lakerunner.formats.attributes import keys_of
from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.decode import read_messages, read_protobuf
from lakerunner.model.errors import BadInput
from lakerunner.model.signals import LOGS
from tests.examples import examples
from tests.formats import reference
from tests.formats.mutation import mutate
from tests.formats.otlp_samples import START_NS, any_value, log_batches, pairs
from tests.formats.otlp_strategies import COUNTS, IDS, TEXT, TIMES, key_values, maybe_value

NAMES = [
    "TRACE",
    "TRACE2",
    "TRACE3",
    "TRACE4",
    "DEBUG",
    "DEBUG2",
    "DEBUG3",
    "DEBUG4",
    "INFO",
    "INFO2",
    "INFO3",
    "INFO4",
    "WARN",
    "WARN2",
    "WARN3",
    "WARN4",
]


def rows_of(batch: LogsData, **options: Any) -> list[dict[str, Any]]:
    tables, _ = read_protobuf(batch.SerializeToString(), LOGS, Limits(), Options(**options))
    return [reference.present(row) for row in tables[""].to_pylist()]


@st.composite
def batches(draw: Any) -> LogsData:
    batch = LogsData()
    for _ in range(draw(st.integers(1, 3))):
        parent = batch.resource_logs.add()
        if draw(st.booleans()):
            parent.resource.attributes.extend(draw(key_values()))
        for _ in range(draw(st.integers(0, 2))):
            child = parent.scope_logs.add()
            if draw(st.booleans()):
                child.scope.name, child.scope.version = draw(TEXT), draw(TEXT)
                child.scope.attributes.extend(draw(key_values()))
            for _ in range(draw(st.integers(0, 3))):
                child.log_records.add(
                    time_unix_nano=draw(TIMES),
                    observed_time_unix_nano=draw(TIMES),
                    severity_number=draw(st.integers(0, 16)),
                    severity_text=draw(TEXT),
                    body=draw(maybe_value()),
                    attributes=draw(key_values()),
                    dropped_attributes_count=draw(COUNTS),
                    flags=draw(COUNTS),
                    trace_id=draw(IDS),
                    span_id=draw(IDS),
                    event_name=draw(TEXT),
                )
    return batch


def expected(batch: LogsData) -> list[dict[str, Any]]:
    attributes, fixed = [], []
    for parent in batch.resource_logs:
        for child in parent.scope_logs:
            named = [KeyValue(key=k, value=any_value(v)) for k, v in
                     (("name", child.scope.name), ("version", child.scope.version)) if v]  # fmt: skip
            for record in child.log_records:
                levels = {"resource": parent.resource.attributes, "scope": [*child.scope.attributes, *named]}
                levels |= {"attr": record.attributes}
                attributes.append({prefix: reference.flat(pairs) for prefix, pairs in levels.items()})
                fixed.append((parent, record))
    rows = []
    for (parent, record), columns in zip(fixed, reference.attribute_rows(attributes), strict=True):
        service = next((p.value for p in parent.resource.attributes if p.key == "service.name"), None)
        at = record.time_unix_nano or record.observed_time_unix_nano
        if not 0 < at < 2**63:
            continue
        observed = record.observed_time_unix_nano
        row = {
            "timestamp": at,
            "observed_timestamp": observed if 0 < observed < 2**63 and record.time_unix_nano else None,
            "service_name": reference.go_message(service) or None if service is not None else None,
            "severity": record.severity_text or (NAMES[record.severity_number - 1] if record.severity_number else None),
            "message": reference.go_message(record.body),
            "event_name": record.event_name or None,
            "trace_id": reference.hex_id(record.trace_id),
            "span_id": reference.hex_id(record.span_id),
            "flags": record.flags,
            "dropped_attributes_count": record.dropped_attributes_count,
        }
        if record.severity_number:
            row["severity_number"] = record.severity_number
        rows.append(reference.present(row | columns))
    return rows


def found_in(wire: bytes) -> list[dict[str, Any]]:
    tables = read_messages([wire], LOGS, Limits(), Options(), Tally())
    table = tables[""]
    for name in ("timestamp", "observed_timestamp"):
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.int64()))
    return [reference.present(row) for row in table.to_pylist()]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches())
def test_rows_are_what_the_reference_reads(batch):
    actual = found_in(batch.SerializeToString())
    wanted = expected(batch)
    for have, want in zip(actual, wanted, strict=True):
        # A number made from a name is ours; the reference only knows the one that was sent.
        if "severity_number" not in want:
            have.pop("severity_number", None)
        have.pop("severity_derived", None)
        have.pop("spelled_keys", None)
        assert have == want


def test_a_resource_without_records_decides_no_type():
    batch = LogsData()
    parent = batch.resource_logs.add()
    parent.resource.attributes.extend(pairs({"b": False}))
    parent.scope_logs.add().log_records.add(time_unix_nano=START_NS)
    batch.resource_logs.add().resource.attributes.extend(pairs({"b": "text", "unused": 1}))
    tables, _ = read_protobuf(batch.SerializeToString(), LOGS, Limits(), Options())
    assert tables[""].column("resource_b").to_pylist() == [False]
    assert "resource_unused" not in tables[""].column_names


def test_a_realistic_batch_lands_whole():
    batch = next(log_batches(200))
    rows = rows_of(batch)
    assert len(rows) == 200
    assert rows[0]["service_name"] in rows[0]["resource_service_instance_id"]
    assert {type(rows[0][f"attr_{key}"]) for key in ("http_status_code", "cached", "http_route")} == {int, bool, str}


def test_body_and_times_fall_back():
    batch = LogsData()
    child = batch.resource_logs.add().scope_logs.add()
    child.log_records.add(observed_time_unix_nano=START_NS, body=any_value({"a": [1, None]}))
    child.log_records.add(body=any_value("no time"))
    assert [row["message"] for row in rows_of(batch)] == ['{"a":[1,null]}']
    assert [row["message"] for row in rows_of(batch, fallback_time_ns=7)] == ['{"a":[1,null]}', "no time"]
    _, tally = read_protobuf(batch.SerializeToString(), LOGS, Limits(), Options())
    assert tally.rejected == {"no_timestamp": 1}


def test_original_keys_are_kept():
    batch = LogsData()
    child = batch.resource_logs.add().scope_logs.add()
    child.log_records.add(time_unix_nano=1, attributes=pairs({"a.b": "x"}))
    child.log_records.add(time_unix_nano=1, attributes=pairs({"a_b": "y", "K8s-Pod": 1}))
    tables, _ = read_protobuf(batch.SerializeToString(), LOGS, Limits(), Options())
    assert keys_of(tables[""].schema) == {"attr_a_b": ["a.b", "a_b"], "attr_k8s_pod": ["K8s-Pod"]}
    assert tables[""].column("attr_a_b").to_pylist() == ["x", "y"]


@pytest.mark.parametrize("values", [(True, [1], "last"), ([1], True, "last"), ("a", 2, 3.5)])
def test_of_a_key_that_was_sent_three_times_the_last_has_the_column_and_the_first_is_kept_beside_it(values):
    batch = LogsData()
    child = batch.resource_logs.add().scope_logs.add()
    child.log_records.add(time_unix_nano=1, attributes=[KeyValue(key="a", value=any_value(each)) for each in values])
    tables, tally = read_protobuf(batch.SerializeToString(), LOGS, Limits(), Options())
    (row,) = tables[""].to_pylist()
    texts = [reference.go_message(any_value(each)) for each in values]
    assert row["attr_a"] == texts[-1] and row["attributes_overflow"] == [("attr_a", texts[0])]
    assert tally.cut == {"duplicate_attribute": 1}


def test_the_rarest_keys_overflow():
    batch = LogsData()
    parent = batch.resource_logs.add()
    parent.resource.attributes.extend(pairs({"zone": "z1"}))
    child = parent.scope_logs.add()
    child.log_records.add(time_unix_nano=1, attributes=pairs({f"k{i:03}": i for i in range(300)}))
    child.log_records.add(time_unix_nano=2, attributes=pairs({f"k{i:03}": i for i in range(100, 300)}))
    first, second = rows_of(batch)
    assert sum(name.startswith(("attr_k", "resource_")) for name in first) == 256
    assert first["resource_zone"] == second["resource_zone"] == "z1"
    assert first["attributes_overflow"] == [(f"attr_k{i:03}", str(i)) for i in range(55, 100)]
    assert "attributes_overflow" not in second


def test_limits_cut_and_count():
    batch = LogsData()
    child = batch.resource_logs.add().scope_logs.add()
    child.log_records.add(time_unix_nano=1, body=any_value("é" * 10), attributes=pairs({"a": 1, "b": 2, "c": 3}))
    child.log_records.add(time_unix_nano=2, body=any_value("short"), attributes=pairs({"a": 4}))
    limits = Limits(attributes_per_row=2, value_bytes=5)
    tables, tally = read_protobuf(batch.SerializeToString(), LOGS, limits, Options())
    rows = tables[""].to_pylist()
    assert [row["message"] for row in rows] == ["éé", "short"]
    assert [(row["attr_a"], row["attr_b"]) for row in rows] == [(1, 2), (4, None)]
    assert "attr_c" not in tables[""].column_names
    assert tally.cut == {"attributes_per_row": 1, "value_bytes": 1}


def test_names_of_attributes_are_cut_and_counted():
    batch = LogsData()
    batch.resource_logs.add().scope_logs.add().log_records.add(
        time_unix_nano=1, attributes=pairs({"k" * 5_000: 1, "a": 2})
    )
    tables, tally = read_protobuf(batch.SerializeToString(), LOGS, Limits(), Options())
    (row,) = tables[""].to_pylist()
    assert (row["attr_a"], row["attr_" + "k" * 1_024]) == (2, 1)
    assert tally.cut == {"key_bytes": 1}


# Wire that no library writes, but that arrives.


def wrap(record: bytes) -> bytes:
    for field in (2, 2, 1):
        record = bytes([field << 3 | 2, len(record)]) + record
    return record


TIME = b"\x09" + (5).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\x2a\x06\x0a\x02hi\x18\x05", "5"),
        (b"\x2a\x06\x18\x05\x0a\x02hi", "hi"),
        (b"\x2a\x04\x0a\x02hi\x2a\x02\x18\x05", "5"),
        (b"\x2a\x05\x0a\x03a\xffb", "a\ufffdb"),
        (b"\x2a\x09\x2a\x07\x0a\x05\x0a\x03a\xffb", '["a\ufffdb"]'),
        (b"\xfa\x01\x02hi\x2a\x04\x0a\x02hi", "hi"),
        (b"\xfb\x01\x08\x01\xfc\x01\x2a\x04\x0a\x02hi", "hi"),
        (b"\x2a\x00", None),
        (b"\x2a\x02\x0a\x00", ""),
    ],
)
def test_odd_wire_is_read_as_the_reference_reads_it(record, message):
    data = wrap(TIME + record)
    tables, tally = read_protobuf(data, LOGS, Limits(), Options())
    assert tables[""].column("message").to_pylist() == [message]
    if message and "\ufffd" in message and not message.startswith("["):
        assert tally.cut == {"invalid_utf8": 1}
    else:
        sent = (
            LogsData.FromString(data).resource_logs[0].scope_logs[0].log_records[0] if b"\xff" not in record else None
        )
        assert sent is None or reference.go_message(sent.body) == message


@pytest.mark.parametrize("record", [b"\x2a\x05\x0a\x03a", b"\x2a\x06\x2a\x04\x0a\x09hi", b"\x00\x01"])
def test_corrupt_wire_is_refused_as_the_reference_refuses_it(record):
    data = wrap(TIME + record)
    with pytest.raises(BadInput):
        read_protobuf(data, LOGS, Limits(), Options())


@pytest.mark.parametrize("depth", [300_000, 9_000_000])
def test_deeply_nested_groups_do_not_overflow_the_stack(depth):
    groups = b"\x7b" * depth + b"\x7c" * depth
    length = bytearray()
    number = len(groups)
    while number > 0x7F:
        length.append(number & 0x7F | 0x80)
        number >>= 7
    data = b"\x0a" + bytes([*length, number]) + groups
    if depth > 1_000_000:
        with pytest.raises(BadInput):
            read_protobuf(data, LOGS, Limits(), Options())
    else:
        tables, _ = read_protobuf(data, LOGS, Limits(), Options())
        assert tables[""].num_rows == 0


def test_broken_wire_is_read_or_refused_as_the_reference_does():
    batch = next(log_batches(4))
    record = batch.resource_logs[0].scope_logs[0].log_records[0]
    record.body.CopyFrom(any_value({"a": [1, {"b": "x"}], "c": b"zz"}))
    record.attributes.extend(pairs({"n": [1, "a"], "e": None, "d": {"k": 1}}))
    outcomes = set()
    for number in range(400):
        mutant = mutate(batch.SerializeToString(), random.Random(number))
        try:
            wanted, refused = expected(LogsData.FromString(mutant)), ""
        except DecodeError as reason:
            wanted, refused = [], str(reason)
        try:
            rows = found_in(mutant)
        except BadInput:
            # Text that is not UTF-8 we repair; but the object may have a second fault behind it.
            assert refused, number
            outcomes.add("refused")
            continue
        if refused:
            assert "UTF-8" in refused, number
            continue
        for row in [*rows, *wanted]:
            for name in ("severity_number", "severity", "severity_derived", "spelled_keys"):
                row.pop(name, None)
        assert rows == wanted, number
        outcomes.add("read")
    assert outcomes == {"read", "refused"}
