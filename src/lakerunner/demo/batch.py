"""A batch: the bytes of one export request and how many records are in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Records of a batch, about: as much as a collector sends at once.
BATCH_RECORDS = 20_000


@dataclass(frozen=True, slots=True)
class Batch:
    """One ExportLogs-, ExportMetrics- or ExportTraceServiceRequest, encoded."""

    signal: str
    payload: bytes
    #: Log records, spans or data points.
    records: int
    #: Entries of the request, one a pod.
    resources: int
    #: Data points by kind (gauge, sum, histogram, exponential_histogram, summary), for metrics.
    by_kind: Mapping[str, int] = field(default_factory=dict)
