from __future__ import annotations

import json
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.decode import read_messages, read_protobuf
from lakerunner.model.signals import TRACES
from tests.examples import examples
from tests.formats import reference
from tests.formats.otlp_samples import any_value, pairs, trace_batches
from tests.formats.otlp_strategies import COUNTS, IDS, TEXT, TIMES, key_values

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUSES = ("unset", "ok", "error")
TRACE_IDS = st.one_of(st.binary(min_size=16, max_size=16), st.just(b""))


@st.composite
def batches(draw: Any) -> TracesData:
    batch = TracesData()
    for _ in range(draw(st.integers(1, 2))):
        parent = batch.resource_spans.add()
        parent.resource.attributes.extend(draw(key_values()))
        child = parent.scope_spans.add()
        child.scope.name = draw(TEXT)
        for _ in range(draw(st.integers(0, 3))):
            span = child.spans.add(
                trace_id=draw(TRACE_IDS),
                span_id=draw(IDS),
                parent_span_id=draw(IDS),
                trace_state=draw(TEXT),
                name=draw(TEXT),
                kind=draw(st.integers(0, 7)),
                start_time_unix_nano=draw(TIMES),
                end_time_unix_nano=draw(TIMES),
                attributes=draw(key_values()),
                dropped_attributes_count=draw(COUNTS),
                dropped_events_count=draw(COUNTS),
                dropped_links_count=draw(COUNTS),
                flags=draw(COUNTS),
            )
            if draw(st.booleans()):
                span.status.code, span.status.message = draw(st.integers(0, 4)), draw(TEXT)
            for _ in range(draw(st.integers(0, 2))):
                span.events.add(time_unix_nano=draw(TIMES), name=draw(TEXT), attributes=draw(key_values()))
            for _ in range(draw(st.integers(0, 2))):
                span.links.add(trace_id=draw(IDS), span_id=draw(IDS), flags=draw(COUNTS), attributes=draw(key_values()))
    return batch


def known(time_ns: int) -> int | None:
    return time_ns if 0 < time_ns < 2**63 else None


def members(pairs: Any) -> list[tuple[str, Any]] | None:
    """Keys and values, as a JSON object that may have a key twice has them."""
    return [(pair.key, repr(reference.typed(pair.value))) for pair in pairs] or None


def json_members(text: str | None) -> list[tuple[str, Any]] | None:
    if text is None:
        return None
    # orjson keeps one of two equal keys, so the object is taken apart as a list of pairs.
    found: list[tuple[str, Any]] = []
    json.loads(text, object_pairs_hook=lambda pairs: found.clear() or found.extend(pairs) or dict(pairs))
    assert orjson.loads(text) == dict(found)
    return [(key, repr(value)) for key, value in found]


def expected(batch: TracesData) -> list[dict[str, Any]]:
    levels, spans = [], []
    for parent in batch.resource_spans:
        for child in parent.scope_spans:
            named = [KeyValue(key="name", value=any_value(child.scope.name))] if child.scope.name else []
            for span in child.spans:
                own = {"resource": list(parent.resource.attributes), "scope": named, "attr": list(span.attributes)}
                levels.append(own)
                spans.append((parent, span))
    rows = []
    for (parent, span), columns in zip(spans, reference.attribute_rows(levels, reference.typed), strict=True):
        start, end = span.start_time_unix_nano, span.end_time_unix_nano
        if not 0 < start < 2**63 or end >= 2**63 or not any(span.trace_id):
            continue
        service = next((p.value for p in parent.resource.attributes if p.key == "service.name"), None)
        row = {
            "trace_id": span.trace_id.hex(),
            "span_id": reference.hex_id(span.span_id),
            "parent_span_id": reference.hex_id(span.parent_span_id),
            "trace_state": span.trace_state or None,
            "flags": span.flags,
            "name": span.name,
            "kind": KINDS[span.kind] if span.kind < len(KINDS) else None,
            "status_code": STATUSES[span.status.code] if span.status.code < 3 else None,
            "status_message": span.status.message or None,
            "start_timestamp": start,
            "duration_ns": end - start if end else 0,
            "service_name": reference.message(service, reference.typed) or None if service is not None else None,
            "events": [(e.name, e.time_unix_nano if 0 < e.time_unix_nano < 2**63 else None) for e in span.events]
            or None,
            "links": [(reference.hex_id(link.trace_id), link.flags) for link in span.links] or None,
            "dropped_attributes_count": span.dropped_attributes_count,
            "dropped_events_count": span.dropped_events_count,
            "dropped_links_count": span.dropped_links_count,
        }
        rows.append(reference.present(row | columns))
    return rows


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches())
def test_rows_are_what_the_reference_reads(batch):
    table = read_messages([batch.SerializeToString()], TRACES, Limits(), Options(), Tally())[""]
    at = table.column("start_timestamp").cast(pa.int64())
    rows = table.set_column(table.column_names.index("start_timestamp"), "start_timestamp", at).to_pylist()
    for row in rows:
        events, links = row["events"], row["links"]
        row["events"] = events and [(e["name"], e["timestamp"].value if e["timestamp"] else None) for e in events]
        row["links"] = links and [(link["trace_id"], link["flags"]) for link in links]
        # What these are for is tested with the attributes that they restore.
        del row["spelled_keys"], row["sent_types"]
    assert [reference.present(row) for row in rows] == expected(batch)


@settings(max_examples=examples(50), deadline=None)
@given(key_values())
@example(pairs({"a": 1.0, "b": -0.0, "c": 1e16, "d": float("nan"), "e": 1e-7, "f": 1, "g": '\n"', "h": [1.0, None]}))
def test_attributes_of_events_are_one_json_object(attributes):
    batch = TracesData()
    span = batch.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16, start_time_unix_nano=1)
    span.events.add(name="before")
    span.events.add(name="e", attributes=attributes)
    span.events.add(name="after")
    table = read_messages([batch.SerializeToString()], TRACES, Limits(), Options(), Tally())[""]
    before, event, after = table.column("events")[0].as_py()
    assert before["attributes"] is None and after["attributes"] is None
    assert json_members(event["attributes"]) == members(attributes)


def test_a_realistic_batch_lands_whole():
    batch = next(trace_batches(300))
    tables, tally = read_protobuf(batch.SerializeToString(), TRACES, Limits(), Options())
    assert tables[""].num_rows == 300
    assert not tally.rejected
    failed = [row for row in tables[""].to_pylist() if row["status_code"] == "error"]
    assert failed and all(row["events"][0]["name"] == "exception" for row in failed)
    assert all(len(row["trace_id"]) == 32 and row["duration_ns"] > 0 for row in failed)
