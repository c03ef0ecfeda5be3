"""Tiers of metrics: samples thinned out per series and bucket of time, with what the dropped ones amounted to.

A tier has the columns of raw samples and real samples in them, so everything that reads raw samples reads a tier. The
columns below are null but in the row of a bucket's last sample.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lakerunner.model.column import Column
from lakerunner.model.errors import BadInput
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES, SPAN

#: Widths of the buckets of all tiers, in seconds. The first one is for derived series only.
TIERS_S = (10, 60, 300, 3_600, 86_400)
#: The tiers that are made of raw samples, each from the one before it.
ROLLED_TIERS_S = TIERS_S[1:]

#: Resolution of the sketch: 64 buckets per power of two, so a bucket's middle is within 0.55% of every value in it.
SKETCH_SCHEMA = 6

COUNT = "chq_rollup_count"
SUM, SUM_LOW = "chq_rollup_sum", "chq_rollup_sum_low"
MIN, MAX = "chq_rollup_min", "chq_rollup_max"
FIRST, FIRST_TIMESTAMP, LAST = "chq_rollup_first", "chq_rollup_first_timestamp", "chq_rollup_last"
INCREASE, RESETS = "chq_rollup_increase", "chq_rollup_resets"
SKETCH = "chq_rollup_sketch_"

ROLLUP_COLUMNS = (
    Column(COUNT, pa.int64(), "Samples in the bucket, without stale markers."),
    Column(SUM, pa.float64(), "Sum of the values, rounded once; null where all samples are histograms."),
    Column(SUM_LOW, pa.float64(), "What the rounding of the sum lost."),
    Column(MIN, pa.float64(), "Smallest value; NaN only if all are NaN."),
    Column(MAX, pa.float64(), "Largest value; NaN only if all are NaN."),
    Column(FIRST, pa.float64(), "The first value."),
    Column(FIRST_TIMESTAMP, pa.timestamp("ms", "UTC"), "When the first value was measured."),
    Column(LAST, pa.float64(), "The last value."),
    Column(INCREASE, pa.float64(), "From the first to the last value; a counter that restarted counts from zero."),
    Column(RESETS, pa.float64(), "The part of the increase that restarts of the counter add."),
    Column(f"{SKETCH}schema", pa.int8(), "Resolution of the sketch of the values, an exponential histogram."),
    Column(f"{SKETCH}zero_count", pa.float64(), "Values that are zero."),
    Column(f"{SKETCH}positive_spans", pa.list_(SPAN), "Spans of the positive buckets."),
    Column(f"{SKETCH}positive_buckets", pa.list_(pa.float64()), "Numbers of positive values."),
    Column(f"{SKETCH}negative_spans", pa.list_(SPAN), "Spans of the negative buckets."),
    Column(f"{SKETCH}negative_buckets", pa.list_(pa.float64()), "Numbers of negative values."),
)

SERIES_SKETCH = Column(
    "chq_rollup_series",
    pa.binary(),
    "HyperLogLog of the metric's series in the segment (Apache DataSketches), in the metric's first row.",
)

#: The tables of a tier, and the signal with which its segments are written.
TIER_SAMPLES = replace(SAMPLES, columns=(*SAMPLES.columns, *ROLLUP_COLUMNS))
TIER_SERIES = replace(SERIES, columns=(*SERIES.columns, SERIES_SKETCH))
TIER_METRICS = replace(METRICS, tables=(TIER_SAMPLES, TIER_SERIES))


def finer_tiers(tier_s: int) -> tuple[int, ...]:
    """The tiers through which raw samples become this one, itself last.

    Always through these, so that rounding never depends on what a tier was made of.

    >>> finer_tiers(3600)
    (60, 300, 3600)
    >>> finer_tiers(10)
    (10,)
    """
    if tier_s not in TIERS_S:
        raise BadInput(f"cannot roll up to {tier_s} s: there is no such tier", hint=f"the tiers are {TIERS_S}")
    return (*(tier for tier in ROLLED_TIERS_S if tier < tier_s), tier_s)
