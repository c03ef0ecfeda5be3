"""The lake behind the API's port: sources of one query each, their account told in the port's terms."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

import orjson

from lakerunner.index.database import Database
from lakerunner.index.lookup import live_fingerprint
from lakerunner.model.errors import LimitHit, Unavailable
from lakerunner.model.labels import LabelSet
from lakerunner.model.signals.metrics import METRICS
from lakerunner.query import metadata
from lakerunner.query.lake import Lake
from lakerunner.query.lake_port import Exemplar, HeadCount, MetricMeta, ScanLimits, ScanStats, Selector
from lakerunner.query.lake_source import LakeSource, QueryLimits
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.promql.part import Evaluated, Part
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.vectors.context import EngineOptions

#: Time, value and start: what a sample weighs while it is read. A histogram weighs more, and is fewer.
_BYTES_PER_SAMPLE = 24


class LakeDoor:
    """Implements `LakePort` over the lake."""

    def __init__(self, lake: Lake, database: Database) -> None:
        self._lake = lake
        self._database = database

    def source(self, org_id: uuid.UUID, limits: ScanLimits, cancelled: Callable[[], None]) -> LakeScan:
        held_bytes = limits.max_samples * _BYTES_PER_SAMPLE
        allowed = QueryLimits(limits.timeout_s, held_bytes, limits.max_bytes, limits.max_samples, limits.partial)
        return LakeScan(self._lake.source(org_id, allowed, cancelled), limits)

    def fingerprint(self, org_id: uuid.UUID, start_ms: int, end_ms: int) -> str | None:
        time_range = Leaf(org_id, (), start_ms, end_ms).time_range
        try:
            with self._database.transaction() as tx:
                return live_fingerprint(tx, org_id, METRICS.name, time_range)
        except Unavailable:
            # Queries go on for a while from what is known of the index; what they find is not to be kept.
            return None

    def ping(self) -> None:
        self._database.ping()

    def close(self) -> None:
        self._lake.close()


class LakeScan:
    """Implements `OrgSource` for one query."""

    def __init__(self, inner: LakeSource, limits: ScanLimits) -> None:
        self._inner = inner
        self._limits = limits

    def prepare(self, text: str, start_ms: int, end_ms: int, step_ms: int, options: EngineOptions) -> None:
        self._inner.prepare(text, start_ms, end_ms, step_ms, options)

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesBatch:
        return self._inner.select(matchers, start_ms, end_ms)

    def evaluate(self, part: Part) -> Evaluated | None:
        return self._inner.evaluate(part)

    def stats(self) -> ScanStats:
        told = self._inner.stats
        return ScanStats(
            segments_planned=told.segments_planned,
            segments_read=told.segments_read,
            segments_failed=len(told.segments_failed),
            rows=told.rows,
            bytes=told.read_bytes,
            cache_hits=told.cache_hits,
            tiers_s={explain.leaf.tier_s for explain in told.explains},
            watermark_ms=told.watermark_ms,
            index_age_s=told.index_age_s,
            pushed=dict(told.pushed),
            worker_cpu_s=told.worker_cpu_s,
            seconds=dict(told.seconds),
            warnings=list(told.warnings()),
        )

    def explain(self) -> Sequence[Mapping[str, object]]:
        return [explain.to_json() for explain in self._inner.stats.explains]

    def labels(self, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[str]:
        return metadata.label_names(self._inner, selectors, start_ms, end_ms)

    def label_values(self, name: str, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[str]:
        return metadata.label_values(self._inner, name, selectors, start_ms, end_ms)

    def series(self, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[LabelSet]:
        found = metadata.series(self._inner, selectors, start_ms, end_ms)
        if len(found) > self._limits.max_series:
            raise LimitHit(
                f"cannot list {len(found):,} series: more than {self._limits.max_series:,} (api.max_series)",
                hint="narrow the selectors",
            )
        return found

    def metadata(self, metric: str, start_ms: int, end_ms: int) -> Mapping[str, Sequence[MetricMeta]]:
        found = metadata.metadata(self._inner, start_ms, end_ms, metric)
        return {name: [MetricMeta(one.type, one.help, one.unit) for one in about] for name, about in found.items()}

    def exemplars(self, selectors: Sequence[Selector], start_ms: int, end_ms: int) -> Sequence[Exemplar]:
        return [
            Exemplar(series, _exemplar_labels(one), one.value, one.timestamp_ms)
            for selector in selectors
            for series, found in metadata.exemplars(self._inner, selector, start_ms, end_ms)
            for one in found
        ]

    def head_count(self, start_ms: int, end_ms: int, limit: int) -> HeadCount:
        found = metadata.cardinality(self._inner, start_ms, end_ms, limit)
        return HeadCount(
            found.series, found.label_pairs, found.by_metric_name, found.values_by_label, found.by_label_pair
        )


def _exemplar_labels(exemplar: metadata.Exemplar) -> LabelSet:
    further = orjson.loads(exemplar.attributes) if exemplar.attributes else {}
    labels = {str(name): value if isinstance(value, str) else str(value) for name, value in further.items()}
    return LabelSet.of({**labels, "trace_id": exemplar.trace_id, "span_id": exemplar.span_id})
