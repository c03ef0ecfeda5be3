"""A lake in memory, by org: what the API is tested over where the lake itself is not the point."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakerunner.model.errors import LimitHit
from lakerunner.model.labels import LabelSet
from lakerunner.query.lake_port import Exemplar, HeadCount, MetricMeta, ScanLimits, ScanStats, Selector
from lakerunner.query.promql.eval.context import EngineOptions
from lakerunner.query.promql.matchers import Matcher
from lakerunner.query.promql.memory_source import MemorySource
from lakerunner.query.promql.source import SelectHints, SeriesBatch

EVERYTHING = SelectHints()


@dataclass(repr=False)
class MemoryScan:
    """A source for one query, that counts, and may be slow or broken on purpose."""

    series: MemorySource
    limits: ScanLimits
    delay_s: float
    cancelled: Callable[[], None]
    counted: ScanStats = field(default_factory=ScanStats)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, hints: SelectHints) -> SeriesBatch:
        until = time.monotonic() + self.delay_s
        while time.monotonic() < until:
            time.sleep(0.02)
            self.cancelled()
        batch = self.series.select(matchers, start_ms, end_ms, hints)
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


@dataclass(repr=False)
class MemoryLake:
    """Implements `LakePort`."""

    by_org: dict[uuid.UUID, MemorySource] = field(default_factory=dict)
    meta: dict[uuid.UUID, dict[str, list[MetricMeta]]] = field(default_factory=dict)
    kept_exemplars: dict[uuid.UUID, list[Exemplar]] = field(default_factory=dict)
    version: int = 0
    delay_s: float = 0.0
    scans: list[MemoryScan] = field(default_factory=list)

    def of(self, org_id: uuid.UUID) -> MemorySource:
        return self.by_org.setdefault(org_id, MemorySource())

    def source(self, org_id: uuid.UUID, limits: ScanLimits, cancelled: Callable[[], None]) -> MemoryScan:
        scan = MemoryScan(self.by_org.get(org_id, MemorySource()), limits, self.delay_s, cancelled)
        self.scans.append(scan)
        return scan

    def series(
        self, org_id: uuid.UUID, selectors: Sequence[Selector], start_ms: int, end_ms: int
    ) -> Sequence[LabelSet]:
        source = self.by_org.get(org_id, MemorySource())
        found = {
            labels
            for selector in selectors or [()]
            for labels in source.select(selector, start_ms, end_ms, EVERYTHING).labels
        }
        return sorted(found, key=lambda labels: labels.pairs)

    def labels(self, org_id: uuid.UUID, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[str]:
        return sorted({name for labels in self.series(org_id, selectors, start_ms, end_ms) for name, _ in labels})

    def label_values(
        self, org_id: uuid.UUID, name: str, selectors: Sequence[Selector], start_ms: int, end_ms: int
    ) -> Sequence[str]:
        found = {labels.get(name) for labels in self.series(org_id, selectors, start_ms, end_ms)}
        return sorted(found - {""})

    def metadata(self, org_id: uuid.UUID, metric: str | None) -> Mapping[str, Sequence[MetricMeta]]:
        known = self.meta.get(org_id, {})
        return {name: entries for name, entries in known.items() if metric in (None, name)}

    def exemplars(
        self, org_id: uuid.UUID, selectors: Sequence[Selector], start_ms: int, end_ms: int
    ) -> Sequence[Exemplar]:
        return [
            one
            for one in self.kept_exemplars.get(org_id, [])
            if start_ms <= one.timestamp_ms <= end_ms
            and any(all(each.matches(one.series.get(each.name)) for each in selector) for selector in selectors)
        ]

    def head_count(self, org_id: uuid.UUID, limit: int) -> HeadCount:
        found = self.series(org_id, [], -(1 << 60), 1 << 60)
        names: dict[str, int] = {}
        for labels in found:
            names[labels.get("__name__")] = names.get(labels.get("__name__"), 0) + 1
        return HeadCount(series=len(found), by_metric=sorted(names.items(), key=lambda pair: -pair[1])[:limit])

    def fingerprint(self, org_id: uuid.UUID, start_ms: int, end_ms: int) -> str | None:
        return str(self.version)

    def ping(self) -> None:
        pass

    def close(self) -> None:
        pass
