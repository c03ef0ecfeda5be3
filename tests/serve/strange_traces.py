"""Traces that no sender should send: circles, ids of wrong length, ends before starts, the same id twice."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signals.traces import TRACES
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.store import keys
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.segment_writer import describe, encode_tables, segment_of
from tests.formats.otlp_samples import pairs

MS = 1_000_000
CIRCLE, ITSELF, TWICE, BACKWARDS, ORPHANS = (f"{number:x}" * 32 for number in range(1, 6))
#: As they are stored: a short id is filled up, a long one is kept.
SHORT, LONG = "0" * 16 + "6" * 16, "7" * 40
#: Name -> id of the trace; ids of its spans and of their parents; the duration of each in milliseconds.
STRANGE: dict[str, tuple[str, list[tuple[str, str]], int]] = {
    "circle": (CIRCLE, [("a1" * 8, "a2" * 8), ("a2" * 8, "a3" * 8), ("a3" * 8, "a1" * 8)], 5),
    "itself": (ITSELF, [("b1" * 8, "b1" * 8), ("b2" * 8, "b1" * 8)], 5),
    "twice": (TWICE, [("c1" * 8, ""), ("c2" * 8, "c1" * 8), ("c2" * 8, "c1" * 8), ("c3" * 8, "c2" * 8)], 5),
    "backwards": (BACKWARDS, [("d1" * 8, ""), ("d2" * 8, "d1" * 8)], -5),
    "orphans": (ORPHANS, [("e1" * 8, "ee" * 8), ("e2" * 3, "e1" * 8), ("", "e1" * 8)], 0),
    "short": (SHORT[16:], [("f1" * 8, ""), ("f2" * 20, "f1" * 8)], 5),
    "long": (LONG, [("91" * 8, ""), ("92" * 8, "91" * 8)], 5),
}


def strange_spans(start_ns: int) -> bytes:
    """All of them as one export request."""
    batch = TracesData()
    for name, (trace_id, spans, duration_ms) in STRANGE.items():
        sender = batch.resource_spans.add()
        sender.resource.attributes.extend(pairs({"service.name": f"strange-{name}"}))
        scope = sender.scope_spans.add()
        for place, (span_id, parent_id) in enumerate(spans):
            begins_ns = start_ns + place * MS
            values: dict[str, Any] = {"place": place, "strange": name, "list": [1, 2], "share": 0.5, "is": True}
            span = scope.spans.add(
                trace_id=bytes.fromhex(trace_id),
                span_id=bytes.fromhex(span_id),
                parent_span_id=bytes.fromhex(parent_id),
                name=f"{name} {place}",
                kind=place % 6,  # type: ignore[arg-type]
                start_time_unix_nano=begins_ns,
                end_time_unix_nano=begins_ns + duration_ms * MS,
                attributes=pairs(values),
            )
            span.events.add(time_unix_nano=begins_ns, name="event", attributes=pairs({"why": name}))
            span.links.add(trace_id=bytes.fromhex(CIRCLE), span_id=b"l" * 8)
    return batch.SerializeToString()


def ingest_spans(lake: Any, org_id: uuid.UUID, body: bytes) -> None:
    """The real way: a raw object, ingest's task, segments, the index."""
    item_id = fresh_id()
    config = StoreConfig.of(lake.settings)
    key = f"otel-raw/{org_id}/c/traces_{item_id}.binpb"
    meta = lake.store.put(key, body)
    raw = RawObject(org_id, "c", "traces", config.url, key, version_of(meta), meta.size_bytes)
    result = run_task(IngestTask(item_id, org_id, "c", "traces", (raw,), {config.url: config}, config))
    assert result.error is None and result.segments, result
    lake.commit(org_id, list(result.segments))


def _hexed(numbers: np.ndarray) -> pa.Array:
    """Sixteen hex digits of each number."""
    body = np.ascontiguousarray(numbers.astype(">u8")).tobytes().hex().encode()
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * 16
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(body))


def write_large(lake: Any, org_id: uuid.UUID, trace_id: str, size: int, start_ns: int, *, chain: bool) -> None:
    """A trace of so many spans, each the child of the one before it, or all children of the first."""
    number = np.arange(size)
    ids = _hexed(number + 1)
    parents = _hexed(number if chain else np.ones(size, np.int64))
    columns = {
        "trace_id": pa.array([trace_id], pa.string()).take(pa.array(np.zeros(size, np.int64))),
        "span_id": ids,
        "parent_span_id": pc.if_else(pa.array(number > 0), parents, pa.scalar(None, pa.string())),
        "name": pa.array(["step"], pa.string()).take(pa.array(np.zeros(size, np.int64))),
        "start_timestamp": pa.array(start_ns + number, pa.timestamp("ns", "UTC")),
        "duration_ns": pa.array(number),
        "service_name": pa.array(["large"], pa.string()).take(pa.array(np.zeros(size, np.int64))),
    }
    schema = TRACES.rows.schema()
    arrays = [columns.get(field.name, pa.nulls(size, field.type)) for field in schema]
    table = pa.table(arrays, schema=schema)
    (body,) = encode_tables(TRACES, {"": table})
    segment = segment_of(TRACES, describe(TRACES, table), segment_id=fresh_id(), org_id=org_id, collector="c",
                         size_bytes=body.size)  # fmt: skip
    lake.store.put(keys.segment_keys(segment)[0], memoryview(body))
    lake.commit(org_id, [segment])
