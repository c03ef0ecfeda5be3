"""A lake in a folder, without an index: it knows its own segments, and what each was evaluated with."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lakerunner.model.ids import fresh_id
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.lake_query import LakeQuery, QueryLimits
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.plan.coverage import CoverageWant, Gap
from lakerunner.query.plan.planner import Planner
from lakerunner.query.rules.rule import Compute, RuleVersion
from lakerunner.query.run import run
from lakerunner.query.series.block import EvaluationError
from lakerunner.query.series.memory_source import MemorySeries
from lakerunner.query.series.results import MatrixResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store import keys
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of
from tests.query.lake_of_series import samples_table, series_table

ORG = uuid.UUID(int=7)
BUCKET_MS = 10_000
_QUERIES = {
    Compute.COUNT: "sum by ({by})(count_over_time({match}[10s]))",
    Compute.BYTES: "sum by ({by})(bytes_over_time({match}[10s]))",
    Compute.SUM: 'sum by ({by})(sum_over_time({match} | unwrap {field} | __error__="" [10s]))',
    Compute.MIN: 'min by ({by})(min_over_time({match} | unwrap {field} | __error__="" [10s]))',
    Compute.MAX: 'max by ({by})(max_over_time({match} | unwrap {field} | __error__="" [10s]))',
}


@dataclass(slots=True)
class Stored:
    """A segment of raw rows, and the rules that its rows were evaluated with."""

    segment: Segment
    rules: frozenset[int]


@dataclass
class SmallLake:
    folder: Path
    raw: list[Stored] = field(default_factory=list)
    derived: list[Segment] = field(default_factory=list)
    items: int = 0

    def __post_init__(self) -> None:
        self.settings = Settings(data=DataSettings(dir=self.folder))
        self.config = StoreConfig.of(self.settings)
        self.store = open_store(self.config)
        self.workers = local_workers(self.settings, "rewrites")

    def close(self) -> None:
        self.workers.close()

    def forget(self) -> None:
        """Begin again, with nothing."""
        self.raw.clear()
        self.derived.clear()
        self.items = 0

    def source(self, only: Sequence[Segment] | None = None) -> LakeQuery:
        segments = [*(each.segment for each in self.raw), *self.derived] if only is None else only
        planner = Planner(None, ORG, only=segments)  # type: ignore[arg-type]
        return LakeQuery(ORG, planner, self.workers, QueryLimits(timeout_s=60.0))

    def ingest(self, signal: Signal, requests: Sequence[bytes], rules: Sequence[RuleVersion]) -> None:
        """One item: its rows and what the rules make of them become visible together."""
        raws = []
        for number, request in enumerate(requests):
            key = f"otel-raw/{ORG}/c/{fresh_id()}/{signal.name}_{number}.json"
            meta = self.store.put(key, request)
            raws.append(RawObject(ORG, "c", signal.name, self.config.url, key, version_of(meta), meta.size_bytes))
        task = IngestTask(
            fresh_id(), ORG, "c", signal.name, tuple(raws), {self.config.url: self.config}, self.config
        )  # fmt: skip
        result = run_task(task)
        assert result.error is None, result.error
        refused = [each.quarantine_reason for each in result.objects if each.quarantine_reason]
        assert not refused, refused
        self.items += 1
        made = [each for each in result.segments if each.signal == signal.name]
        known = frozenset(rule.rule_id for rule in rules if self._derive(rule, made))
        self.raw += [Stored(each, known) for each in made]

    def gaps(self, want: CoverageWant, rule_signal: str = LOGS.name) -> list[Gap]:
        return [
            Gap(stored.segment.time_range.start_ns - 1, stored.segment.time_range.end_ns - 1, "not evaluated")
            for stored in self.raw
            if stored.segment.signal == rule_signal
            and want.rule_id not in stored.rules
            and stored.segment.time_range.start_ns <= want.end_ns
            and stored.segment.time_range.end_ns - 1 > want.start_ns
        ]

    def _derive(self, rule: RuleVersion, made: Sequence[Segment]) -> bool:
        first = min(each.time_range.start_ns for each in made) // 1_000_000 // BUCKET_MS * BUCKET_MS
        last = max(each.time_range.end_ns for each in made) // 1_000_000 // BUCKET_MS * BUCKET_MS + 2 * BUCKET_MS
        by = ", ".join(name for name, _ in rule.dimensions)
        if rule.signal == "logs":
            text = _QUERIES[rule.compute].format(by=by, match=rule.match, field=rule.field)
        else:
            grouping = f" by ({by})" if by else ""
            text = f"{rule.match} | {rule.compute}_over_time({rule.field}){grouping}"
        name = {"logs": "logql", "traces": "traceql"}[rule.signal]
        plan = language(name).compile(text, QueryTimes(first, last, BUCKET_MS), QueryOptions())
        try:
            result = run(plan, self.source(made), lambda: None)
        except EvaluationError:
            return False
        assert isinstance(result.value, MatrixResult)
        labels = dict(rule.dimensions)
        series = []
        for each in result.value:
            typed = int(rule.signal == "traces")
            named = {labels[name]: value[typed:] for name, value in each.labels.pairs} | dict(rule.static_labels)
            values = np.asarray(each.values)
            there = values != 0 if rule.compute is Compute.COUNT else np.ones(len(values), bool)
            times = each.timestamps_ms[there] - BUCKET_MS + 2 + 2 * self.items
            pairs = LabelSet.of({METRIC_NAME: rule.name, **named})
            series.append(MemorySeries(pairs, times, values[there], times - 1, None))
        if series:
            self.derived.append(
                self._put({SAMPLES.suffix: samples_table(series), SERIES.suffix: series_table(series, None)})
            )

    def _put(self, tables: dict[str, object]) -> Segment:
        files = encode_tables(METRICS, tables)  # type: ignore[arg-type]
        about = describe(METRICS, tables[SAMPLES.suffix])  # type: ignore[arg-type]
        size = sum(file.size for file in files)
        segment = segment_of(METRICS, about, segment_id=fresh_id(), org_id=ORG, collector="c", size_bytes=size)
        for key, file in zip(keys.segment_keys(segment), files, strict=True):
            self.store.put(key, memoryview(file))
        return segment
