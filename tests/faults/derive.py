"""The crash matrix of ingest with rules: ingest killed at each point while rules change, compaction and backfill run.

The seed draws the objects, how they are bundled, at which passing ingest dies, and whether rules are added or changed
before its work is done again. In the end the samples of every rule say what the stored rows say. Then all messages
come again, and nothing may change. Seed 0 kills tasks of a real Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.model.signals import TRACES
from lakerunner.pipeline.ingest.stage import INGEST
from tests.faults.clean_roles import beside, relay, until
from tests.faults.matrix import Matrix
from tests.faults.ruled_lake import RuledTrial
from tests.faults.victims import kill_role
from tests.pipeline.lake import OBJECT_TOPICS, otlp

#: Point -> the role that passes it.
POINTS: Mapping[str, str] = {
    "derive_after_write": "ingest",
    "derive_after_complete": "ingest",
    "ingest_after_read": "ingest",
    "ingest_after_write": "ingest",
    "before_commit": "ingest",
    "after_commit": "ingest",
    "worker_before_bus_commit": "ingest",
    "worker_after_bus_commit": "ingest",
}


class Trial(RuledTrial):
    def run(self) -> str:
        self.apply_first()
        self.put()
        self.lake.put(TRACES, otlp(TRACES, 12, seed=self.cell.seed))
        self.objects += 1
        self._kill()
        changed = self.change_rules()
        with beside(*self.clean_roles()):
            # Rows that come while the rest is done again.
            self.put(0)
            until(self.has_ended, "a clean run ends all")
            counted = self.check()
            self.publish_all_again()
            until(self.has_ended, "what was published again is done")
        assert self.check() == counted
        return f"objects {self.objects} rules {changed} counted {counted}"

    def _kill(self) -> None:
        with beside(relay(self.lake)):
            with beside(self.boxer(INGEST, OBJECT_TOPICS)):
                until(lambda: self.lake.states() == {"bundled": self.objects}, "all is bundled")
            until(lambda: self.count("outbox WHERE published_at IS NULL") == 0, "all items are on the bus")
            items = self.count("work_item")
            passing = self.draw.randint(1, 6 if self.cell.point.endswith("bus_commit") else items)
            kill_role(self.lake, "ingest", self.cell.point, passing, on_spark=self.cell.seed == 0)


MATRIX = Matrix("derive", POINTS, Trial)
