"""Cells with materialization rules: rows in, rules that change meanwhile, and samples that must say what rows say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lakerunner.bus import topics
from lakerunner.index.orgs import create_org
from lakerunner.index.overdue import Overdue
from lakerunner.index.rule_catalog import live_rules
from lakerunner.index.rule_coverage import coverage
from lakerunner.model.signals import LOGS, SIGNALS, TRACES
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.backfill.request import announce, left, wanted_versions
from lakerunner.pipeline.backfill.stage import BACKFILL, BackfillRunner
from lakerunner.pipeline.backfill.task import run_task as run_backfill
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.compact.stage import COMPACT, CompactRunner
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.reconcile import reconcile
from lakerunner.pipeline.rule_changes import apply_groups
from lakerunner.pipeline.stage import Runner, Stage
from lakerunner.query.lake import open_lake
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.run import run
from lakerunner.query.series.times import QueryTimes
from lakerunner.rules.file import read_rules
from lakerunner.runtime.stop import Stop
from tests.faults import clean_roles, matrix
from tests.faults.clean_roles import Loop, work
from tests.faults.victims import run_here
from tests.formats.otlp_samples import START_NS
from tests.pipeline.compact.small_lake import run_here as run_compactions
from tests.pipeline.lake import OBJECT_TOPICS, ORG, WORK_TOPICS, otlp

ALWAYS = TimeRange(0, 1 << 62)
#: Samples of otlp() lie within seconds of START_NS.
_AT_MS = START_NS // 10**6 + 600_000
_RULES = """
groups:
  - name: shop
    rules:
      - materialize: lines_total
        signal: logs
        match: '{service_name=~".+"}'
        dimensions: [service_name]
      - materialize: failed_lines_total
        signal: logs
        match: '{service_name=~".+"} |= "status 500"'
        dimensions: [service_name]
      - materialize: spans_total
        signal: traces
        match: '{ }'
        dimensions: [resource.service.name]
"""
#: Rules that a cell may add, or change, while work is under way.
_ADDED = """
      - materialize: span_seconds
        signal: traces
        match: '{ }'
        dimensions: [resource.service.name]
        compute: histogram(duration)
      - materialize: line_bytes_total
        signal: logs
        match: '{service_name=~".+"}'
        dimensions: [service_name]
        compute: bytes
"""
_STAGES = (INGEST, COMPACT, BACKFILL)
_GROUPS = ("boxer-ingest", "ingest", "boxer-compact", "compact", "boxer-backfill", "backfill")


class RuledTrial(matrix.Trial):
    """A lake with rules, in which ingest, compaction and backfill work at the same time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        with self.lake.database.transaction() as tx:
            create_org(tx, "acme", ORG)
        self.objects = 0

    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            "pipeline": {"compact_wait_s": 0.1, "compact_segments": 2, "bundle_objects": self.draw.randint(1, 4)},
            "derive": {"span_metrics": True, "service_graph": True, "slot_keep_s": 1e10, "remake_wait_s": 0.05},
        }

    def apply(self, text: str) -> None:
        apply_groups(self.lake.database, ORG, read_rules(text), "test", max_rules=10)

    def apply_first(self) -> None:
        self.apply(_RULES)

    def change_rules(self) -> str:
        """Add rules or change one while items are under way, or do nothing."""
        drawn = self.draw.choice(["nothing", "added", "changed"])
        if drawn == "added":
            self.apply(_RULES + _ADDED)
        elif drawn == "changed":
            self.apply(_RULES.replace("status 500", "status 404"))
        return drawn

    def put(self, least: int = 2) -> None:
        """Raw objects of log records and spans."""
        for _ in range(self.draw.randint(least, 6)):
            signal = self.draw.choice([LOGS, TRACES])
            # A multiple of four: the sample makers give every replica the same.
            body = otlp(signal, 4 * self.draw.randint(3, 30), seed=self.draw.randrange(1 << 30))
            self.lake.put(signal, body)
            self.objects += 1

    def clean_roles(self) -> list[Loop]:
        settings, database = self.lake.settings, self.lake.database
        return [
            clean_roles.relay(self.lake),
            self.announcer,
            self.boxer(INGEST, OBJECT_TOPICS),
            self.worker(INGEST, IngestRunner(settings, database, run_here), WORK_TOPICS),
            self.boxer(COMPACT),
            self.worker(COMPACT, CompactRunner(settings, database, run_compactions)),
            self.boxer(BACKFILL),
            self.worker(BACKFILL, BackfillRunner(settings, database, lambda tasks: [run_backfill(t) for t in tasks])),
        ]

    def announcer(self, stop: Stop) -> None:
        """What `rules backfill` and the sweeper do: announce what is left, and again what was not finished."""
        while not stop.wait(0.3):
            self.announce()
            reconcile(self.lake.database, [BACKFILL, INGEST], Overdue(1.0, 0.5))

    def announce(self) -> None:
        announce(self.lake.database, ORG, wanted_versions(self.lake.database, ORG, None), ALWAYS)

    def boxer(self, stage: Stage[Any], names: Sequence[str] = ()) -> Loop:
        def run(stop: Stop) -> None:
            with self.consumer(f"boxer-{stage.name}", names or made_topics(stage)) as consumer:
                Boxer(stage, self.lake.database, consumer, self.lake.settings.pipeline).run(stop)

        return run

    def worker(self, stage: Stage[Any], runner: Runner[Any], names: Sequence[str] = ()) -> Loop:
        def run(stop: Stop) -> None:
            with self.consumer(stage.name, names or work_topics(stage)) as consumer:
                work(stage, self.lake, consumer, runner, stop)

        return run

    def has_ended(self) -> bool:
        return self.lake.states() == {"done": self.objects} and self.is_idle(_GROUPS) and self.left() == 0

    def left(self) -> int:
        return left(self.lake.database, ORG, wanted_versions(self.lake.database, ORG, None), ALWAYS).segments

    def publish_all_again(self) -> None:
        names = [*OBJECT_TOPICS, *WORK_TOPICS]
        names += [name for stage in (COMPACT, BACKFILL) for name in (*made_topics(stage), *work_topics(stage))]
        self.publish_again(names)

    def check(self) -> int:
        """Samples of every rule say what the stored rows say, and rules know it. Return the rows counted."""
        with self.lake.database.transaction() as tx:
            rules = live_rules(tx, ORG)
            gaps = [gap for rule in rules for gap in coverage(tx, ORG, rule, 0, 1 << 62)]
        assert not gaps, f"not covered: {gaps}"
        counted = 0
        for rule in rules:
            expected = self._expected(rule.name, rule.definition["match"])
            found = self._sampled(rule.name)
            assert found == expected, f"{rule.name}: samples say {found}, rows {expected}"
            counted += sum(expected.values())
        return counted

    def _expected(self, name: str, match: str) -> Counter[str]:
        """Counted in the files of live segments, by service."""
        signal = TRACES if "span" in name else LOGS
        found: Counter[str] = Counter()
        if not self.lake.segments(signal):
            return found
        columns = ["service_name", *(["message"] if signal is LOGS else [])]
        for row in self.lake.rows(signal).select(columns).to_pylist():
            if name == "line_bytes_total":
                found[row["service_name"]] += len(row["message"].encode())
            elif "|=" not in match or match.split('"')[-2] in row["message"]:
                found[row["service_name"]] += 1
        return found

    def _sampled(self, name: str, label: str = "service_name") -> Counter[str]:
        """Queried, because samples of an earlier version of the rule are hidden, not gone."""
        query = f"sum by ({label}) (sum_over_time({name}[1h]))"
        if name == "span_seconds":
            query = f"histogram_count({query})"
        opened = open_lake(self.lake.settings, self.lake.database)
        try:
            plan = language("promql").compile(query, QueryTimes(_AT_MS, _AT_MS, 0), QueryOptions())
            block = run(plan, opened.query(ORG), lambda: None).value
        finally:
            opened.close()
        found: Counter[str] = Counter()
        for labels, value in zip(block.labels, block.values.ravel(), strict=True):  # type: ignore[union-attr]
            found[dict(labels).get(label, "")] = int(value)
        return found


def made_topics(stage: Stage[Any]) -> list[str]:
    return [topics.made(signal, stage.name).name for signal in _signals(stage)]


def work_topics(stage: Stage[Any]) -> list[str]:
    return [topics.work(signal, stage.name).name for signal in _signals(stage)]


def _signals(stage: Stage[Any]) -> Sequence[Any]:
    return (LOGS, TRACES) if stage is BACKFILL else SIGNALS
