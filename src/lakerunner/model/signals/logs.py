"""Logs: one row a record, by service and time."""

from __future__ import annotations

import pyarrow as pa

from lakerunner.model.column import Column
from lakerunner.model.signal import Signal, Table

LOGS = Signal(
    name="logs",
    tables=(
        Table(
            suffix="",
            columns=(
                Column("timestamp", pa.timestamp("ns", "UTC"), "When it happened.", nullable=False),
                Column("observed_timestamp", pa.timestamp("ns", "UTC"), "When a collector saw it."),
                Column("service_name", pa.string(), "Who wrote it (resource attribute service.name)."),
                Column("severity", pa.string(), "The level as its writer named it, or by its number where it did not."),
                Column("severity_number", pa.int32(), "The level from 1 (trace) to 24 (fatal), as OTLP counts."),
                Column("message", pa.string(), "The line; a structured body as JSON."),
                Column("event_name", pa.string(), "Which event it is, where the record is one (OTLP event_name)."),
                Column("trace_id", pa.string(), "Lower-case hex, 32 digits.", bloom=True),
                Column("span_id", pa.string(), "Lower-case hex, 16 digits.", bloom=True),
                Column("flags", pa.uint32(), "W3C trace flags."),
                Column("dropped_attributes_count", pa.uint32(), "Attributes its sender dropped."),
            ),
            sort_key=("service_name", "timestamp"),
            attributes=True,
        ),
    ),
    time_column="timestamp",
    time_unit_ns=1,
    # A log line may rightly occur twice in the same nanosecond: objects, not rows, are what is counted once.
    dedup_key=(),
    pruning=("service_name",),
)
