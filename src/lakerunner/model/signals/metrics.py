"""Metrics: samples in one object, their series in another."""

from __future__ import annotations

import pyarrow as pa

from lakerunner.model.column import Column
from lakerunner.model.signal import Signal, Table
from lakerunner.model.time import NS_PER_MS

#: A run of buckets: how many to skip, how many follow (as in Prometheus' native histograms).
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
        Column("tid", pa.int64(), "The series: a keyed hash of its label set.", nullable=False),
        Column("timestamp", pa.timestamp("ms", "UTC"), "When it was measured.", nullable=False),
        Column("value", pa.float64(), "The sample, bit for bit as sent; null where it is a histogram."),
        Column(
            "start_timestamp", pa.timestamp("ms", "UTC"), "Start of the counting interval, for sums and histograms."
        ),
        Column("h_schema", pa.int8(), "Bucket resolution; -53 means custom bounds."),
        Column("h_zero_threshold", pa.float64(), "Half width of the zero bucket."),
        Column("h_zero_count", pa.float64(), "Observations in the zero bucket."),
        Column("h_count", pa.float64(), "Number of observations."),
        Column("h_sum", pa.float64(), "Sum of the observations."),
        Column("h_positive_spans", pa.list_(SPAN), "Spans of the positive buckets."),
        Column("h_positive_buckets", pa.list_(pa.float64()), "Absolute counts of the positive buckets."),
        Column("h_negative_spans", pa.list_(SPAN), "Spans of the negative buckets."),
        Column("h_negative_buckets", pa.list_(pa.float64()), "Absolute counts of the negative buckets."),
        Column("h_custom_values", pa.list_(pa.float64()), "Upper bounds, where the schema is custom."),
        Column("h_reset_hint", pa.int8(), "0 unknown, 1 reset, 2 no reset, 3 gauge."),
        Column("exemplars", pa.list_(EXEMPLAR), "Example observations, each with its trace."),
    ),
    sort_key=("metric_name", "tid", "timestamp"),
)

SERIES = Table(
    suffix=".series",
    columns=(
        Column("tid", pa.int64(), "The series: a keyed hash of its label set.", nullable=False),
        Column("metric_name", pa.string(), "The Prometheus name.", nullable=False),
        Column("otel_name", pa.string(), "The name as sent."),
        Column("type", pa.string(), "gauge, counter, histogram, summary, info or unknown."),
        Column("unit", pa.string(), "The unit as sent."),
        Column("description", pa.string(), "The description as sent."),
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
