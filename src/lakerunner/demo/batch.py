"""One encoded export request and its number of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Approximate number of records in a batch: as many as a collector sends at once.
BATCH_RECORDS = 20_000


@dataclass(frozen=True, slots=True)
class Batch:
    """One ExportLogs-, ExportMetrics- or ExportTraceServiceRequest, encoded."""

    signal: str
    payload: bytes
    #: Log records, spans or data points.
    records: int
    #: Entries of the request, one per pod.
    resources: int
    #: For metrics: data points by kind (gauge, sum, histogram, exponential_histogram, summary).
    by_kind: Mapping[str, int] = field(default_factory=dict)
