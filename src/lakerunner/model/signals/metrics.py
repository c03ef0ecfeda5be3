"""Metrics: samples in one object, the series that they belong to in another."""

from __future__ import annotations

import pyarrow as pa

from lakerunner.model.column import Column
from lakerunner.model.signal import Signal, Table
from lakerunner.model.time import NS_PER_MS

#: A run of buckets: how many to skip, how many follow (as Prometheus' native histograms).
SPAN = pa.struct([pa.field("offset", pa.int32()), pa.field("length", pa.uint32())])
EXEMPLAR = pa.struct(
    [
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("value", pa.float64()),
        pa.field("trace_id", pa.string()),
        pa.field("span_id", pa.string()),
        pa.field("attributes", pa.string()),
    ]
)

SAMPLES = Table(
    suffix="",
    columns=(
        Column("metric_name", pa.string(), "The Prometheus name, first in the sort order.", nullable=False),
        Column("tid", pa.int64(), "The series: a hash of its label set.", nullable=False),
        Column("timestamp", pa.timestamp("ms", "UTC"), "When it was measured.", nullable=False),
        Column("value", pa.float64(), "The sample, bit for bit as sent; null where it is a histogram."),
        Column("start_timestamp", pa.timestamp("ms", "UTC"), "Since when it counts, for sums and histograms."),
        Column("h_schema", pa.int8(), "Bucket resolution; -53 means custom bounds."),
        Column("h_zero_threshold", pa.float64(), "Half width of the zero bucket."),
        Column("h_zero_count", pa.float64(), "What is in the zero bucket."),
        Column("h_count", pa.float64(), "Observations."),
        Column("h_sum", pa.float64(), "Their sum."),
        Column("h_positive_spans", pa.list_(SPAN), "Which positive buckets follow."),
        Column("h_positive_buckets", pa.list_(pa.float64()), "Absolute counts of those."),
        Column("h_negative_spans", pa.list_(SPAN), "Which negative buckets follow."),
        Column("h_negative_buckets", pa.list_(pa.float64()), "Absolute counts of those."),
        Column("h_custom_values", pa.list_(pa.float64()), "Upper bounds, where the schema is custom."),
        Column("h_reset_hint", pa.int8(), "0 unknown, 1 reset, 2 no reset, 3 gauge."),
        Column("exemplars", pa.list_(EXEMPLAR), "Examples, with the trace each came from."),
    ),
    sort_key=("metric_name", "tid", "timestamp"),
)

SERIES = Table(
    suffix=".series",
    columns=(
        Column("tid", pa.int64(), "The series: a hash of its label set.", nullable=False),
        Column("metric_name", pa.string(), "The Prometheus name.", nullable=False),
        Column("otel_name", pa.string(), "The name as sent."),
        Column("type", pa.string(), "gauge, counter, histogram, summary, info or unknown."),
        Column("unit", pa.string(), "The unit as sent."),
        Column("description", pa.string(), "What its author says of it."),
        Column("temporality", pa.string(), "cumulative or delta, for sums and histograms."),
        Column("monotonic", pa.bool_(), "Whether a sum only grows."),
        Column("labels", pa.map_(pa.string(), pa.string()), "All labels but the name.", nullable=False),
    ),
    sort_key=("metric_name", "tid"),
)

METRICS = Signal(
    name="metrics",
    tables=(SAMPLES, SERIES),
    time_column="timestamp",
    time_unit_ns=NS_PER_MS,
    dedup_key=("tid", "timestamp"),
    pruning=("metric_name",),
    rolls_up=True,
)
