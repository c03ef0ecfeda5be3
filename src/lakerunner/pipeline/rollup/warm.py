"""Loading the kernels of the rollup before the first window needs them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakerunner.model.signals.metrics import SAMPLES
from lakerunner.model.signals.tiers import ROLLED_TIERS_S
from lakerunner.pipeline.rollup.roll_up import roll_up_tiers


def warm() -> None:
    """Roll up a number and a histogram, which uses all kernels."""
    row = {"metric_name": "m", "tid": 1, "timestamp": 1, "value": 1.0}
    histogram = {"metric_name": "m", "tid": 2, "timestamp": 1, "h_schema": 0, "h_count": 1.0, "h_sum": 1.0}
    histogram |= {"h_positive_spans": [{"offset": 0, "length": 1}], "h_positive_buckets": [1.0], "h_reset_hint": 0}
    rows = [row, {**row, "timestamp": 2}, histogram, {**histogram, "timestamp": 2}]
    with np.errstate(all="ignore"):
        roll_up_tiers(pa.Table.from_pylist(rows, SAMPLES.schema()), ROLLED_TIERS_S)
