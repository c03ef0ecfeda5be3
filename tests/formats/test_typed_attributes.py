"""What was sent as attributes of a span comes back: every key, type and value, whatever the columns look like."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.decode import read_messages
from lakerunner.formats.typed_attributes import TYPES, Level, python_value, typed_attributes
from lakerunner.formats.unify_tables import unify_tables
from lakerunner.model.signals import TRACES
from tests.formats.otlp_samples import pairs
from tests.formats.otlp_strategies import key_values


def sent(value: AnyValue) -> Any:
    """The value with its type."""
    kind = value.WhichOneof("value")
    match kind:
        case None:
            return None
        case "array_value":
            return [sent(item) for item in value.array_value.values]
        case "kvlist_value":
            return {pair.key: sent(pair.value) for pair in value.kvlist_value.values}
        case "double_value" if math.isnan(value.double_value):
            return "double", "nan"
        case _:
            return kind.removesuffix("_value"), getattr(value, kind)


def returned(value: Any) -> Any:
    match value:
        case None:
            return None
        case list():
            return [returned(item) for item in value]
        case dict():
            return {key: returned(member) for key, member in value.items()}
        case bool():
            return "bool", value
        case int():
            return "int", value
        case float():
            return ("double", "nan") if math.isnan(value) else ("double", value)
        case bytes():
            return "bytes", value
        case _:
            return "string", value


def batch_of(resource: list[KeyValue], scope: list[KeyValue], own: list[KeyValue], start: int) -> TracesData:
    batch = TracesData()
    parent = batch.resource_spans.add()
    parent.resource.attributes.extend(resource)
    child = parent.scope_spans.add()
    child.scope.attributes.extend(scope)
    child.spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, start_time_unix_nano=start, attributes=own)
    return batch


def distinct(found: list[KeyValue]) -> list[KeyValue]:
    """One pair per column: of two keys with one column in one span, types may be told for one only."""
    from lakerunner.model.labels import attribute_column

    return list({attribute_column("", pair.key): pair for pair in found}.values())


SPANS = st.lists(st.tuples(key_values(), key_values(), key_values()), min_size=1, max_size=3)
TYPED = st.dictionaries(
    st.sampled_from(["attr_a", "attr_b", "resource_a", "attr_c"]), st.sampled_from(["text", "double", "int64", "bool"])
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SPANS, TYPED)
@example([([], [], pairs({"a": 2.0})), ([], [], pairs({"a": 2})), ([], [], pairs({"A": "2"}))], {"attr_a": "double"})
@example(
    [([], pairs({"name": "x"}), pairs({"a": [1, 1.0, b"b"], "b": b"c", "c": {"$x": math.inf}}))], {"attr_a": "bool"}
)
def test_attributes_come_back_as_they_were_sent(spans, types):
    spans = [tuple(map(distinct, each)) for each in spans]
    tables = [
        read_messages([batch_of(*each, start).SerializeToString()], TRACES, Limits(), Options(), Tally())[""]
        for start, each in enumerate(spans, 1)
    ]
    whole = unify_tables(tables, TRACES.rows, types=AttributeTypes(types)).combine_chunks()
    lists = typed_attributes(
        pa.RecordBatch.from_arrays([c.combine_chunks() for c in whole.columns], schema=whole.schema)
    )
    for row, (resource, scope, own) in zip(lists.to_pylist(), spans, strict=True):
        expected = [
            (int(level), pair.key, repr(sent(pair.value)))
            for level, found in ((Level.RESOURCE, resource), (Level.SCOPE, scope), (Level.SPAN, own))
            for pair in found
        ]
        got = [(each["level"], each["key"], repr(returned(python_value(each["type"], each["value"])))) for each in row]
        assert sorted(got) == sorted(expected)
        assert all(0 <= each["type"] < len(TYPES) for each in row)
