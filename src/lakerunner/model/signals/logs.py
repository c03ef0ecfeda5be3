"""Logs: one row per record, sorted by service and time."""

from __future__ import annotations

import pyarrow as pa

from lakerunner.model.column import Column
from lakerunner.model.signal import Signal, Table

#: The level of a record in few words: what Loki calls `detected_level`.
LEVEL = "level"
#: The fingerprint of a message's pattern. Clients of Lakerunner's other releases know it by this name.
FINGERPRINT = "chq_fingerprint"
#: What a LogQL query must know to show a record exactly as it was sent.
DERIVED, SPELLED, REPEAT = "severity_derived", "spelled_keys", "repeat"

LOGS = Signal(
    name="logs",
    tables=(
        Table(
            suffix="",
            columns=(
                Column("timestamp", pa.timestamp("ns", "UTC"), "When it happened.", nullable=False),
                Column(
                    "observed_timestamp",
                    pa.timestamp("ns", "UTC"),
                    "When a collector saw it, if it also has a time of its own.",
                ),
                Column(
                    "service_name",
                    pa.string(),
                    "The service that wrote it (service.name, else the name of its container or job).",
                    runs=True,
                ),
                Column("severity", pa.string(), "The level as the sender named it, else the name of severity_number."),
                Column("severity_number", pa.int32(), "The OTLP level, from 1 (trace) to 24 (fatal)."),
                Column(
                    LEVEL, pa.string(), "The level in few words, from attributes, severity or message; else unknown."
                ),
                Column("message", pa.string(), "The log line; a structured body is written as JSON.", needles=True),
                Column("event_name", pa.string(), "The name of the event, when the record is one (OTLP event_name)."),
                Column("trace_id", pa.string(), "Lower-case hex, 32 digits.", bloom=True),
                Column("span_id", pa.string(), "Lower-case hex, 16 digits.", bloom=True),
                Column("flags", pa.uint32(), "W3C trace flags."),
                Column("dropped_attributes_count", pa.uint32(), "Attributes that the sender dropped."),
                Column(
                    FINGERPRINT, pa.int64(), "Equal for messages that differ only in numbers, ids and quoted texts."
                ),
                Column(
                    DERIVED,
                    pa.string(),
                    "severity or severity_number, if that one was not sent but derived from the other.",
                    sparse=True,
                ),
                Column(
                    SPELLED,
                    pa.string(),
                    "Keys of the row that are not spelled as usual in their column: a JSON object of column and key.",
                    sparse=True,
                ),
                Column(REPEAT, pa.bool_(), "true if an earlier row is equal in all columns.", sparse=True),
            ),
            sort_key=("service_name", "timestamp"),
            attributes=True,
        ),
    ),
    time_column="timestamp",
    time_unit_ns=1,
    # The same line may legitimately occur twice in one nanosecond, so duplicates are detected per object, not per row.
    dedup_key=(),
    pruning=("service_name",),
)
