"""A lake in memory, by org: what the API is tested over where the lake itself is not the point."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakerunner.model.errors import LimitHit
from lakerunner.model.labels import LabelSet
from lakerunner.query.lake_port import Exemplar, HeadCount, MetricMeta, ScanLimits, ScanStats, Selector
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.vectors.context import EngineOptions


@dataclass(repr=False)
class MemoryOrg:
    """What one org has."""

    samples: MemorySource = field(default_factory=MemorySource)
    meta: dict[str, list[MetricMeta]] = field(default_factory=dict)
    exemplars: list[Exemplar] = field(default_factory=list)


@dataclass(repr=False)
class MemoryScan:
    """A source for one query, that counts, and may be slow or broken on purpose."""

    org: MemoryOrg
    limits: ScanLimits
    delay_s: float
    cancelled: Callable[[], None]
    counted: ScanStats = field(default_factory=ScanStats)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesBatch:
        until = time.monotonic() + self.delay_s
        while time.monotonic() < until:
            time.sleep(0.02)
            self.cancelled()
        batch = self.org.samples.select(matchers, start_ms, end_ms)
        with self.lock:
            self.counted.segments_planned += 1
            self.counted.segments_read += 1
            self.counted.rows += len(batch.values)
            self.counted.bytes += 16 * len(batch.values)
            self.counted.tiers_s.add(0)
        if self.counted.bytes > self.limits.max_bytes:
            raise LimitHit(
                f"cannot read more than {self.limits.max_bytes:,} bytes (api.max_bytes)", hint="ask for less"
            )
        return batch

    def prepare(self, text: str, start_ms: int, end_ms: int, step_ms: int, options: EngineOptions) -> None:
        pass

    def stats(self) -> ScanStats:
        return self.counted

    def explain(self) -> Sequence[Mapping[str, object]]:
        return [{"segments": self.counted.segments_read}]

    def series(self, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[LabelSet]:
        found = {
            labels
            for selector in selectors or [()]
            for labels in self.org.samples.select(selector, start_ms, end_ms).labels
        }
        return sorted(found, key=lambda labels: labels.pairs)

    def labels(self, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[str]:
        return sorted({name for labels in self.series(selectors, start_ms, end_ms) for name, _ in labels})

    def label_values(self, name: str, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[str]:
        return sorted({labels.get(name) for labels in self.series(selectors, start_ms, end_ms)} - {""})

    def metadata(self, metric: str, start_ms: int, end_ms: int) -> Mapping[str, Sequence[MetricMeta]]:
        return {name: entries for name, entries in self.org.meta.items() if metric in ("", name)}

    def exemplars(self, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[Exemplar]:
        return [
            one
            for one in self.org.exemplars
            if start_ms <= one.timestamp_ms <= end_ms
            and any(all(each.matches(one.series.get(each.name)) for each in selector) for selector in selectors)
        ]

    def head_count(self, start_ms: int, end_ms: int, limit: int) -> HeadCount:
        names: Counter[str] = Counter(labels.get("__name__") for labels in self.series([], -(1 << 60), 1 << 60))
        return HeadCount(series=names.total(), by_metric=names.most_common(limit))


@dataclass(repr=False)
class MemoryLake:
    """Implements `LakePort`."""

    orgs: dict[uuid.UUID, MemoryOrg] = field(default_factory=dict)
    version: int = 0
    delay_s: float = 0.0
    scans: list[MemoryScan] = field(default_factory=list)

    def org(self, org_id: uuid.UUID) -> MemoryOrg:
        return self.orgs.setdefault(org_id, MemoryOrg())

    def of(self, org_id: uuid.UUID) -> MemorySource:
        return self.org(org_id).samples

    def source(self, org_id: uuid.UUID, limits: ScanLimits, cancelled: Callable[[], None]) -> MemoryScan:
        scan = MemoryScan(self.orgs.get(org_id, MemoryOrg()), limits, self.delay_s, cancelled)
        self.scans.append(scan)
        return scan

    def fingerprint(self, org_id: uuid.UUID, start_ms: int, end_ms: int) -> str | None:
        return str(self.version)

    def ping(self) -> None:
        pass

    def close(self) -> None:
        pass
