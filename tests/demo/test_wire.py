"""Records filled column by column equal records built one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs

from lakerunner.demo import wire
from lakerunner.demo.wire import RecordTemplate, Varying

STAMP = RecordTemplate(
    ScopeLogs(
        log_records=[
            LogRecord(
                time_unix_nano=wire.fixed_sentinel("time"),
                body=wire.any_value("order <order> of <user>: <user>"),
                attributes=wire.attributes([("size", Varying("size")), ("price", Varying("price")), ("same", 7)]),
                trace_id=wire.field_sentinel("trace_id"),
            )
        ]
    ).SerializeToString()
)

RECORD = st.tuples(
    st.integers(1, 2**63 - 1),
    st.integers(0, 99_999),
    st.integers(128, 16_383),
    st.floats(allow_nan=False),
    st.binary(min_size=16, max_size=16),
)


@given(st.lists(RECORD, min_size=1, max_size=20))
def test_a_filled_stamp_is_what_protobuf_would_write(records):
    times, users, sizes, prices, traces = zip(*records, strict=True)
    trace_id = np.frombuffer(b"".join(traces), dtype=np.uint8).reshape(-1, 16)
    columns = {
        "time": wire.fixed64(np.array(times, dtype=np.int64)),
        "user": wire.digits(np.array(users, dtype=np.int64), 5),
        "size": wire.varint2(np.array(sizes, dtype=np.int64)),
        "price": wire.doubles(np.array(prices, dtype=np.float64)),
        "order": wire.hexed(np.pad(trace_id, ((0, 0), (0, 2)))),
        "trace_id": trace_id,
    }
    rows = STAMP.fill(len(records), columns)
    for row, (time_ns, user, size, price, trace) in zip(rows, records, strict=True):
        expected = LogRecord(
            time_unix_nano=time_ns,
            body=wire.any_value(f"order {trace.hex()}0000 of {user:05d}: {user:05d}"),
            attributes=wire.attributes([("size", size), ("price", price), ("same", 7)]),
            trace_id=trace,
        )
        assert row == ScopeLogs(log_records=[expected]).SerializeToString()


@given(st.integers(0, 2**40), st.binary(max_size=300))
def test_lengths_are_varints(value, payload):
    encoded = wire.varint(value)
    assert sum((byte & 0x7F) << 7 * at for at, byte in enumerate(encoded)) == value
    assert wire.field(2, payload) == b"\x12" + wire.varint(len(payload)) + payload


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100)), max_size=50), st.integers(1, 20))
def test_grouping_loses_nothing_and_orders_by_time(records, limit):
    rows = [bytes([owner, time_ns]) for owner, time_ns in records]
    owner = np.array([owner for owner, _ in records], dtype=np.int64)
    time_ns = np.array([time_ns for _, time_ns in records], dtype=np.int64)
    parts = list(wire.grouped(rows, owner, time_ns, limit))
    owners = [who for part in parts for who, _ in part]
    assert owners == sorted(set(owners))
    assert sorted(row for part in parts for _, group in part for row in group) == sorted(rows)
    for who, group in (pair for part in parts for pair in part):
        assert [row[0] for row in group] == [who] * len(group)
        assert [row[1] for row in group] == sorted(row[1] for row in group)
