"""The lake as the API sees it: series of one org, what is known about them, and what reading them took."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.vectors.context import EngineOptions

#: Matchers that a series must all satisfy.
Selector = Sequence[Matcher]


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """What one query may make the lake read."""

    max_bytes: int
    max_series: int
    max_samples: int
    timeout_s: float
    #: Whether an answer may miss what cannot be read, and say so; otherwise that is an error.
    partial: bool = True


@dataclass(slots=True)
class ScanStats:
    """What reading took, so far. An answer repeats it: nothing is silently short."""

    segments_planned: int = 0
    segments_read: int = 0
    segments_failed: int = 0
    rows: int = 0
    bytes: int = 0
    #: Segments that were on local disk already.
    cache_hits: int = 0
    #: Widths of the rollup buckets that were read, in seconds; 0 is raw.
    tiers_s: set[int] = field(default_factory=set)
    #: Everything before it has arrived and been made visible, as far as is known.
    watermark_ms: int | None = None
    #: How long ago the segments were looked up, where the index does not answer; 0 where it does.
    index_age_s: float = 0.0
    #: Worker -> steps that were evaluated there; the rest was evaluated here.
    pushed: dict[str, int] = field(default_factory=dict)
    worker_cpu_s: float = 0.0
    #: Stage -> seconds; those of threads and workers are summed, and so may exceed the clock.
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        return {
            "segmentsPlanned": self.segments_planned,
            "segmentsRead": self.segments_read,
            "segmentsFailed": self.segments_failed,
            "rows": self.rows,
            "bytes": self.bytes,
            "segmentCacheHits": self.cache_hits,
            "tiersSeconds": sorted(self.tiers_s),
            "watermarkMs": self.watermark_ms,
            "indexAgeSeconds": round(self.index_age_s, 1),
        }


@dataclass(frozen=True, slots=True)
class MetricMeta:
    type: str
    help: str
    unit: str


@dataclass(frozen=True, slots=True)
class Exemplar:
    series: LabelSet
    labels: LabelSet
    value: float
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class HeadCount:
    """How many series, by what: for `status/tsdb`. Pairs are a name and a number, largest first."""

    series: int = 0
    label_pairs: int = 0
    by_metric: Sequence[tuple[str, int]] = ()
    values_by_label: Sequence[tuple[str, int]] = ()
    by_pair: Sequence[tuple[str, int]] = ()


class OrgSource(SeriesSource, Protocol):
    """All that one query may see: the series of one org. Methods may be called by several threads at once.

    Times are milliseconds, both ends included. A series that any of the selectors accepts is meant; without
    selectors, every series.
    """

    def prepare(self, text: str, start_ms: int, end_ms: int, step_ms: int, options: EngineOptions) -> None:
        """Look up what all selectors of a query need, so that they see one state of the lake."""
        ...

    def stats(self) -> ScanStats:
        """What was read so far, and what is missing from it."""
        ...

    def explain(self) -> Sequence[Mapping[str, object]]:
        """One entry a selector read: segments considered, what pruned them, what was left."""
        ...

    def labels(self, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[str]: ...

    def label_values(self, name: str, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[str]: ...

    def series(self, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[LabelSet]: ...

    def metadata(self, metric: str, start_ms: int, end_ms: int) -> Mapping[str, Sequence[MetricMeta]]: ...

    def exemplars(self, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[Exemplar]: ...

    def head_count(self, start_ms: int, end_ms: int, limit: int) -> HeadCount: ...


class LakePort(Protocol):
    """Everything is asked for one org; nothing of another can come back."""

    def source(self, org_id: uuid.UUID, limits: ScanLimits, cancelled: Callable[[], None]) -> OrgSource:
        """For one query. `cancelled` raises when nobody waits for it any more."""
        ...

    def fingerprint(self, org_id: uuid.UUID, start_ms: int, end_ms: int) -> str | None:
        """A text that changes whenever the live segments of the range do. None: unknown, so nothing may be kept."""
        ...

    def ping(self) -> None: ...

    def close(self) -> None: ...
