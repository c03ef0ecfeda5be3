"""A lake in a folder, without an index: it knows its own segments, and what each was evaluated with."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.model.compute import Compute
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.pipeline.compact.task import CompactTask
from lakerunner.pipeline.compact.task import run_task as run_compaction
from lakerunner.pipeline.derive.rule_set import RuleSet, Trouble
from lakerunner.pipeline.derive.rule_set import RuleVersion as Version
from lakerunner.pipeline.derive.spans import DeriveOptions
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.limits import QueryLimits
from lakerunner.query.plan.coverage import CoverageWant, Gap
from lakerunner.query.plan.planner import Planner
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.rules.definitions import Materialize
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

ORG = uuid.UUID(int=7)
_VERSIONS = itertools.count(1)


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
    holes: list[Trouble] = field(default_factory=list)
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
        self.holes.clear()
        self.items = 0

    def source(self, only: Sequence[Segment] | None = None) -> LakeQuery:
        segments = [*(each.segment for each in self.raw), *self.derived] if only is None else only
        planner = Planner(None, ORG, only=segments)  # type: ignore[arg-type]
        return LakeQuery(ORG, planner, self.workers, QueryLimits(timeout_s=600.0))

    def ingest(self, signal: Signal, requests: Sequence[bytes], rules: Sequence[RuleVersion]) -> None:
        """One item: its rows and what the rules make of them become visible together."""
        raws = []
        for number, request in enumerate(requests):
            key = f"otel-raw/{ORG}/c/{fresh_id()}/{signal.name}_{number}.json"
            meta = self.store.put(key, request)
            raws.append(RawObject(ORG, "c", signal.name, self.config.url, key, version_of(meta), meta.size_bytes))
        known = tuple(Version(each.rule_id, each.version, materialize(each)) for each in rules)
        # A version of the catalog of its own for every item, so that nothing compiled is taken for another lake's.
        catalog = RuleSet(ORG, signal.name, next(_VERSIONS), known)
        derive = DeriveOptions(slot=self.items, span_metrics=False, service_graph=False)
        sources = {self.config.url: self.config}
        task = IngestTask(
            fresh_id(), ORG, "c", signal.name, tuple(raws), sources, self.config, derive=derive, rules=catalog
        )
        result = run_task(task)
        assert result.error is None, result.error
        refused = [each.quarantine_reason for each in result.objects if each.quarantine_reason]
        assert not refused, refused
        self.items += 1
        ids = frozenset(rule.rule_id for rule in rules)
        # Only raw rows say with which version they were evaluated.
        self.raw += [Stored(each, ids) for each in result.segments if each.rules_version]
        self.derived += [each for each in result.segments if not each.rules_version]
        self.holes += result.evaluation.troubles

    def compact(self) -> None:
        """Merge raw segments that were evaluated with the same rules, and all derived ones."""
        groups: dict[frozenset[int], list[Segment]] = {}
        for stored in self.raw:
            groups.setdefault(stored.rules, []).append(stored.segment)
        self.raw = [Stored(each, rules) for rules, segments in groups.items() for each in self._merged(segments)]
        self.derived = self._merged(self.derived)

    def _merged(self, segments: Sequence[Segment]) -> list[Segment]:
        if len(segments) < 2:
            return list(segments)
        inputs = sorted(segments, key=lambda each: (each.time_range.start_ns, each.segment_id))
        scratch = str(self.folder / "scratch")
        task = CompactTask(fresh_id(), inputs[0].signal, tuple(inputs), self.config, scratch, AttributeTypes())
        result = run_compaction(task)
        assert result.error is None, result.error
        assert result.segment is not None
        if result.unseen_ns is not None:
            self.holes.append(Trouble(0, "", *result.unseen_ns, "compaction found rows that were stored twice"))
        return [result.segment]

    def gaps(self, want: CoverageWant) -> list[Gap]:
        """As the index knows them: segments that the rule has not seen, and rows that it failed on."""
        unseen = [
            Gap(stored.segment.time_range.start_ns - 1, stored.segment.time_range.end_ns - 1, "not evaluated")
            for stored in self.raw
            if want.rule_id not in stored.rules
        ]
        failed = [
            Gap(hole.first_ns - 1, hole.last_ns, hole.reason)
            for hole in self.holes
            if hole.rule_id in (0, want.rule_id)
        ]
        return [gap for gap in (*unseen, *failed) if gap.start_ns < want.end_ns and gap.end_ns > want.start_ns]


def materialize(rule: RuleVersion) -> Materialize:
    names = tuple(name for name, _ in rule.dimensions)
    compute = Compute(str(rule.compute))
    return Materialize(rule.name, rule.signal, rule.match, names, compute, rule.field, labels=dict(rule.static_labels))
