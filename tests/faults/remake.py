"""The crash matrix of derived metrics after a deletion: their maker is killed at each point, while rows come.

Rows of one service are deleted; compaction merges what is left, and replaced samples are deleted meanwhile. From the
request on, no rule covers the time before its samples were made again, so what rules cover is right at every moment.
In the end the samples of every rule, the span metrics and the service graph say what the stored rows say. Seed 0 kills
tasks of a real Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lakerunner.bus import topics
from lakerunner.index.overdue import Overdue
from lakerunner.index.rule_catalog import find_rule
from lakerunner.index.rule_coverage import coverage
from lakerunner.model.signals import LOGS, SIGNALS, TRACES
from lakerunner.pipeline.delete.request import begin_due
from lakerunner.pipeline.delete.stage import DELETE, DeleteRunner
from lakerunner.pipeline.delete.task import run_task as run_rewrite
from lakerunner.pipeline.reconcile import reconcile
from lakerunner.runtime.stop import Stop
from tests.faults.clean_roles import Loop, beside, until
from tests.faults.matrix import Matrix
from tests.faults.ruled_lake import RuledTrial
from tests.faults.victims import kill_role
from tests.formats.otlp_samples import START_NS
from tests.pipeline.compact.small_lake import ingest
from tests.pipeline.delete import deleting
from tests.pipeline.derive.test_service_graph import Spans, batch_of, brute_force, spans_of
from tests.pipeline.lake import ORG, otlp

#: Point -> the role that passes it.
POINTS: Mapping[str, str] = {
    "remake_taken": "backfill",
    "backfill_after_read": "backfill",
    "backfill_after_write": "backfill",
    "remake_after_write": "backfill",
    "before_commit": "backfill",
    "after_commit": "backfill",
}
_HOUR_NS = 3_600 * 10**9
_NOT_MADE = "derived_window WHERE state <> 'made'"


class Trial(RuledTrial):
    def run(self) -> str:
        self.apply_first()
        for _ in range(self.draw.randint(2, 5)):
            for signal in (LOGS, TRACES):
                body = otlp(signal, 4 * self.draw.randint(3, 30), seed=self.draw.randrange(1 << 30))
                ingest(self.lake, self.lake.put(signal, body))
                self.objects += 1
        spans = spans_of(self.draw, 10, START_NS)
        self.draw.shuffle(spans)
        for part in (spans[::2], spans[1::2]):
            ingest(self.lake, self.lake.put(TRACES, batch_of(part)))
            self.objects += 1
        deleted = self._delete()
        on_spark = self.cell.seed == 0
        kill_role(self.lake, POINTS[self.cell.point], self.cell.point, self.draw.randint(1, 2), on_spark=on_spark)
        self._check_covered()
        with beside(*self.clean_roles(), *self._deleters()):
            self.put(0)
            until(self._is_made, "a clean run makes all again")
            counted = self.check()
            self._check_span_metrics(spans)
            self.publish_all_again()
            until(self._is_made, "what was published again is done")
        assert self.check() == counted
        self._check_span_metrics(spans)
        return f"deleted {deleted} counted {counted}"

    def _delete(self) -> int:
        """Delete the rows of one service, of logs and of spans, and let them go."""
        before = sum(self.lake.row_count(signal) for signal in (LOGS, TRACES))
        for signal in (LOGS, TRACES):
            service = self.draw.choice(sorted(set(self.lake.rows(signal).column("service_name").to_pylist())))
            selector, times = f'{{service_name="{service}"}}', (START_NS - _HOUR_NS, START_NS + _HOUR_NS)
            deleting.request(self.lake.database, ORG, signal.name, selector, *times)
        deleting.work_off(self.lake.settings, self.lake.database)
        deleted = before - sum(self.lake.row_count(signal) for signal in (LOGS, TRACES))
        assert deleted and self.count(_NOT_MADE) >= 2, "nothing is to be made again"
        return deleted

    def _check_covered(self) -> None:
        """What a rule covers is right, also after a death."""
        with self.lake.database.transaction() as tx:
            rules = [find_rule(tx, ORG, name) for name in ("lines_total", "spans_total")]
            covered = [rule for rule in rules if not coverage(tx, ORG, rule, 0, 1 << 62)]
        for rule in covered:
            assert self._sampled(rule.name) == self._expected(rule.name, rule.definition["match"])

    def _check_span_metrics(self, spans: Spans) -> None:
        calls = self._sampled("traces_spanmetrics_calls_total", "service")
        assert calls == self._expected("spans_total", ""), "span metrics count other rows than there are"
        left = set(self.lake.rows(TRACES).column("span_id").to_pylist())
        edges, _ = brute_force([(service, span) for service, span in spans if span.span_id.hex() in left])
        servers: Counter[str] = Counter()
        for (_, server), count in edges.items():
            servers[server] += count
        counted = self._sampled("traces_service_graph_request_total", "server")
        assert counted == servers, f"calls differ from spans: {counted - servers} more, {servers - counted} fewer"

    def _is_made(self) -> bool:
        return (
            self.count(_NOT_MADE) == 0
            and self.count("deletion WHERE state IN ('pending', 'running')") == 0
            and self.has_ended()
            and self.is_idle(("boxer-delete", "delete"))
        )

    def _deleters(self) -> list[Loop]:
        settings, database = self.lake.settings, self.lake.database
        runner = DeleteRunner(settings, database, lambda tasks: [run_rewrite(task) for task in tasks])
        made = [topics.made(signal, DELETE.name).name for signal in SIGNALS]
        work = [topics.work(signal, DELETE.name).name for signal in SIGNALS]
        return [self._sweeper, self.boxer(DELETE, made), self.worker(DELETE, runner, work)]

    def _sweeper(self, stop: Stop) -> None:
        while not stop.wait(0.2):
            begin_due(self.lake.database)
            reconcile(self.lake.database, [DELETE], Overdue(0.5, 0.2))


MATRIX = Matrix("remake", POINTS, Trial)
