"""What a materialization rule computes: one list for those who write, evaluate and read its series."""

from __future__ import annotations

import enum


class Compute(enum.StrEnum):
    """What a materialization rule computes from the rows of a series and a bucket of time."""

    COUNT = "count"
    #: Bytes of log lines.
    BYTES = "bytes"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    #: The distribution of a field, as a native histogram.
    HISTOGRAM = "histogram"
    #: How many different values a field has, by HyperLogLog.
    DISTINCT = "distinct"

    @property
    def is_distribution(self) -> bool:
        """Whether samples are native histograms: of values, or of registers that values set."""
        return self in (Compute.HISTOGRAM, Compute.DISTINCT)

    @property
    def needs_field(self) -> bool:
        return self not in (Compute.COUNT, Compute.BYTES)
