"""The crash matrix of backfill: whoever takes part is killed at each point, while segments are merged and rows come.

Rows are stored before their rules. The seed draws them, at which passing the victim dies, and whether rules change
once more meanwhile. In the end the samples of every rule say what the stored rows say, and every rule covers all of
them; a backfill that is repeated finds nothing to do. Seed 0 kills tasks of a real Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.model.signals import LOGS
from lakerunner.pipeline.backfill.stage import BACKFILL
from tests.faults.clean_roles import beside, relay, until
from tests.faults.matrix import Matrix
from tests.faults.ruled_lake import RuledTrial
from tests.faults.victims import kill_role
from tests.pipeline.compact.small_lake import ingest
from tests.pipeline.lake import otlp

#: Point -> the role that passes it.
POINTS: Mapping[str, str] = {
    "backfill_announced": "backfill-requester",
    "boxer_before_bundle": "boxer-backfill",
    "boxer_after_bundle": "boxer-backfill",
    "boxer_before_bus_commit": "boxer-backfill",
    "backfill_after_read": "backfill",
    "backfill_after_write": "backfill",
    "before_commit": "backfill",
    "after_commit": "backfill",
    "worker_before_bus_commit": "backfill",
    "worker_after_bus_commit": "backfill",
}


class Trial(RuledTrial):
    def run(self) -> str:
        for _ in range(self.draw.randint(3, 6)):
            body = otlp(LOGS, 4 * self.draw.randint(3, 30), seed=self.draw.randrange(1 << 30))
            ingest(self.lake, self.lake.put(LOGS, body))
            self.objects += 1
        self.apply_first()
        segments = self.left()
        assert segments, "nothing is to be backfilled"
        self._kill()
        changed = self.change_rules()
        with beside(*self.clean_roles()):
            self.put(0)
            until(self.has_ended, "a clean run ends all")
            counted = self.check()
            self.publish_all_again()
            self.announce()
            until(self.has_ended, "what was published again is done")
        assert self.check() == counted
        return f"segments {segments} rules {changed} counted {counted}"

    def _kill(self) -> None:
        role = POINTS[self.cell.point]
        if role == "backfill-requester":
            kill_role(self.lake, role, self.cell.point, 1)
            return
        self.announce()
        with beside(relay(self.lake)):
            if role == "backfill":
                with beside(self.boxer(BACKFILL)):
                    opened = "work_item WHERE stage = 'backfill' AND state = 'open'"
                    until(lambda: self.count(opened) > 0, "there is work")
                until(lambda: self.count("outbox WHERE published_at IS NULL") == 0, "all items are on the bus")
            passing = self.draw.randint(1, 3) if self.cell.point.endswith("bus_commit") else 1
            if self.cell.point in ("backfill_after_read", "backfill_after_write"):
                # A task per segment.
                passing = self.draw.randint(1, 2)
            kill_role(self.lake, role, self.cell.point, passing, on_spark=self.cell.seed == 0)


MATRIX = Matrix("backfill", POINTS, Trial)
