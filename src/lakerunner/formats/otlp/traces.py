"""Convert OTLP traces to rows: one per span, with its events and links as nested columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Level, promote
from lakerunner.formats.decoded import Tally, table_of
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp import attributes_json
from lakerunner.formats.otlp.anyvalue import Nested, Pairs
from lakerunner.formats.otlp.nesting import hex_ids, member, nanos, null_if_empty, shared_levels, timestamps, unnest
from lakerunner.model.signals import TRACES
from lakerunner.model.signals.traces import EVENT, LINK

_KINDS = pa.array(["unspecified", "internal", "server", "client", "producer", "consumer", None])
_STATUSES = pa.array(["unset", "ok", "error", None])


def trace_tables(parents: pa.StructArray, limits: Limits, options: Options, tally: Tally) -> dict[str, pa.Table]:
    nest = unnest(parents, "scope_spans", "spans")
    spans = nest.records
    resource, scope, service = shared_levels(nest, limits, tally, nested=Nested.TYPED)
    pairs = Pairs.of(spans.field("attributes"), limits, tally, nested=Nested.TYPED)
    own = Level("attr", len(spans), list(pairs.entries(limits, tally)), empty=pairs.empty())
    promoted = promote((resource, scope, own), len(spans), tally, exact=True)

    start_ns, bad = nanos(spans.field("start_time_unix_nano"))
    end_ns, end_bad = nanos(spans.field("end_time_unix_nano"))
    # A span without an end was sent while it was running. Its duration is unknown, so it is stored as zero.
    duration_ns = np.where(end_ns == 0, 0, end_ns - start_ns)
    columns = {
        "trace_id": _full_length(hex_ids(spans.field("trace_id"))),
        "span_id": hex_ids(spans.field("span_id")),
        "parent_span_id": hex_ids(spans.field("parent_span_id")),
        "trace_state": null_if_empty(spans.field("trace_state")),
        "flags": spans.field("flags"),
        "name": spans.field("name"),
        "kind": _named(_KINDS, spans.field("kind")),
        "status_code": _named(_STATUSES, pc.fill_null(member(spans.field("status"), "code"), 0)),
        "status_message": null_if_empty(member(spans.field("status"), "message")),
        "start_timestamp": timestamps(start_ns, "ns"),
        "duration_ns": pa.array(duration_ns),
        "service_name": service.take(pa.array(nest.resource_of)),
        "events": _events(spans.field("events"), limits, tally),
        "links": _links(spans.field("links"), limits, tally),
        "dropped_attributes_count": spans.field("dropped_attributes_count"),
        "dropped_events_count": spans.field("dropped_events_count"),
        "dropped_links_count": spans.field("dropped_links_count"),
    }
    table = promoted.add_to(table_of(TRACES.rows, columns, len(spans)))
    without_id = columns["trace_id"].is_null().to_numpy(zero_copy_only=False)
    late = bad | end_bad
    tally.reject_rows("time_out_of_range", late)
    tally.reject_rows("no_timestamp", (start_ns == 0) & ~late)
    tally.reject_rows("no_trace_id", without_id & (start_ns != 0) & ~late)
    refused = late | (start_ns == 0) | without_id
    return {TRACES.rows.suffix: table.filter(pa.array(~refused)) if refused.any() else table}


def _full_length(trace_ids: pa.Array) -> pa.Array:
    """Return the ids with the zeros before them that some senders leave out."""
    shortest = pc.min(pc.binary_length(trace_ids)).as_py()
    return pc.utf8_lpad(trace_ids, 32, "0") if shortest is not None and shortest < 32 else trace_ids


def _named(names: pa.Array, numbers: pa.Array) -> pa.Array:
    """Return the name of each enum number; null for numbers that we do not know yet."""
    plain = numbers.to_numpy(zero_copy_only=False)
    unknown = len(names) - 1
    return names.take(pa.array(np.where((plain >= 0) & (plain < unknown), plain, unknown)))


def _events(lists: pa.ListArray, limits: Limits, tally: Tally) -> pa.Array:
    events = lists.flatten()
    if not len(events):
        return pa.nulls(len(lists), pa.list_(EVENT))
    time_ns, bad = nanos(events.field("time_unix_nano"))
    children = [
        timestamps(time_ns, "ns", bad | (time_ns == 0)),
        events.field("name"),
        attributes_json.objects(events.field("attributes"), limits, tally, nested=Nested.TYPED),
        events.field("dropped_attributes_count"),
    ]
    return _list_of(lists, pa.StructArray.from_arrays(children, fields=list(EVENT)))


def _links(lists: pa.ListArray, limits: Limits, tally: Tally) -> pa.Array:
    links = lists.flatten()
    if not len(links):
        return pa.nulls(len(lists), pa.list_(LINK))
    children = [
        hex_ids(links.field("trace_id")),
        hex_ids(links.field("span_id")),
        null_if_empty(links.field("trace_state")),
        links.field("flags"),
        attributes_json.objects(links.field("attributes"), limits, tally, nested=Nested.TYPED),
        links.field("dropped_attributes_count"),
    ]
    return _list_of(lists, pa.StructArray.from_arrays(children, fields=list(LINK)))


def _list_of(lists: pa.ListArray, items: pa.StructArray) -> pa.Array:
    """Put the items back into their lists. Empty lists become null, which costs nothing in a file."""
    empty = np.diff(lists.offsets.to_numpy()) == 0
    return pa.ListArray.from_arrays(lists.offsets, items, type=pa.list_(items.type), mask=pa.array(empty))
