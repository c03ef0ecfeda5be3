"""A sample on its way into both engines."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Sample:
    time_ms: int
    #: A histogram, or a float, stale markers included.
    value: float | Histogram
    #: 0 where unknown.
    start_ms: int = 0


Series = dict[LabelSet, list[Sample]]
