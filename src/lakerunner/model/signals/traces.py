"""Traces: one row per span, with the spans of a trace side by side."""

from __future__ import annotations

import pyarrow as pa

from lakerunner.model.column import Column
from lakerunner.model.signal import Signal, Table
from lakerunner.model.signals.logs import SPELLED

#: The types of attributes that their columns do not tell (`formats/sent_types.py`).
SENT = "sent_types"

EVENT = pa.struct(
    [
        pa.field("timestamp", pa.timestamp("ns", "UTC")),
        pa.field("name", pa.string()),
        pa.field("attributes", pa.string()),
        pa.field("dropped_attributes_count", pa.uint32()),
    ]
)
LINK = pa.struct(
    [
        pa.field("trace_id", pa.string()),
        pa.field("span_id", pa.string()),
        pa.field("trace_state", pa.string()),
        pa.field("flags", pa.uint32()),
        pa.field("attributes", pa.string()),
        pa.field("dropped_attributes_count", pa.uint32()),
    ]
)

TRACES = Signal(
    name="traces",
    tables=(
        Table(
            suffix="",
            columns=(
                Column("trace_id", pa.string(), "Lower-case hex, 32 digits.", bloom=True),
                Column("span_id", pa.string(), "Lower-case hex, 16 digits.", bloom=True),
                Column("parent_span_id", pa.string(), "The caller's span; null at the root."),
                Column("trace_state", pa.string(), "W3C trace state."),
                Column("flags", pa.uint32(), "W3C trace flags."),
                Column("name", pa.string(), "The operation."),
                Column("kind", pa.string(), "internal, server, client, producer, consumer or unspecified."),
                Column("status_code", pa.string(), "unset, ok or error."),
                Column("status_message", pa.string(), "The reason for an error status."),
                Column("start_timestamp", pa.timestamp("ns", "UTC"), "When it began.", nullable=False),
                Column("duration_ns", pa.int64(), "How long it took.", nullable=False),
                Column("service_name", pa.string(), "The service that did it (resource attribute service.name)."),
                Column("events", pa.list_(EVENT), "Events within the span; attributes as JSON."),
                Column("links", pa.list_(LINK), "Related spans of other traces; attributes as JSON."),
                Column("dropped_attributes_count", pa.uint32(), "Attributes that the sender dropped."),
                Column("dropped_events_count", pa.uint32(), "Events that the sender dropped."),
                Column("dropped_links_count", pa.uint32(), "Links that the sender dropped."),
                Column(
                    SPELLED,
                    pa.string(),
                    "Keys of the row that are not spelled as usual in their column: a JSON object of column and key.",
                    sparse=True,
                ),
                Column(
                    SENT,
                    pa.string(),
                    "Types of attributes that their columns do not tell: a JSON object of column and type.",
                    sparse=True,
                ),
            ),
            sort_key=("trace_id", "start_timestamp"),
            attributes=True,
        ),
    ),
    time_column="start_timestamp",
    time_unit_ns=1,
    dedup_key=("trace_id", "span_id", "start_timestamp"),
    pruning=("service_name",),
    id_column="trace_id",
)
