"""Each condition holds where it should, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakerunner.index.backlog import SignalFreshness, StageBacklog, TierLag
from lakerunner.index.canary_rounds import CanarySignal
from lakerunner.index.objectives import Burn
from lakerunner.index.outbox import Backlog
from lakerunner.index.status import IndexStatus
from lakerunner.runtime.settings import CanarySettings, MonitorSettings
from lakerunner.serve.admin.conditions import problems
from lakerunner.serve.admin.observation import BucketProbe, Observation

WELL = IndexStatus(
    objects={}, freshness=None, items={}, segments=[], watermarks=[], outbox=Backlog(0, 0.0),
    leaders={"relay": "a", "sweeper": "b"}, stages=[StageBacklog("ingest", 3, 10.0)],
    signals=[SignalFreshness("logs", 1, 1.0, 2.0, 5.0)], levels=[], tiers=[TierLag(60, 1, 100.0)], costs=[],
    burns=[Burn("freshness", 3600, 990, 1000), Burn("freshness", 300, 0, 10)],
    canary=[CanarySignal("logs", 5, 10.0, 1.0, 2.0, 0, 0)], degraded=[],
)  # fmt: skip
NOTHING_READ = IndexStatus(
    objects=None, freshness=None, items=None, segments=None, watermarks=None, outbox=None, leaders=None, stages=None,
    signals=None, levels=None, tiers=None, costs=None, burns=None, canary=None, degraded=["all"],
)  # fmt: skip


def names(index: IndexStatus, dead: int | None = 0, bucket: BucketProbe | None = None) -> list[str]:
    seen = Observation(index, [], dead, bucket or BucketProbe(0.01))
    return [problem.name for problem in problems(seen, MonitorSettings(), CanarySettings())]


def test_a_deployment_that_is_well_has_no_problem() -> None:
    assert names(WELL) == []


def test_what_could_not_be_read_is_no_problem_but_its_absence_is() -> None:
    assert names(NOTHING_READ, dead=None) == ["LakerunnerIndexSlow"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"degraded": ["segments"]}, "LakerunnerIndexSlow"),
        ({"outbox": Backlog(5, 61.0)}, "LakerunnerOutboxStuck"),
        ({"leaders": {"relay": "a"}}, "LakerunnerNoLeader"),
        ({"stages": [StageBacklog("compact", 1, 901.0)]}, "LakerunnerStageStuck"),
        ({"signals": [SignalFreshness("logs", 0, None, None, 901.0)]}, "LakerunnerObjectsWaiting"),
        ({"tiers": [TierLag(60, 3, 14_401.0)]}, "LakerunnerTierLag"),
        ({"burns": [Burn("freshness", 3600, 80, 100), Burn("freshness", 300, 8, 10)]}, "LakerunnerFreshnessBurn"),
        ({"burns": [Burn("query_latency", s, 9, 10) for s in (21600, 1800)]}, "LakerunnerQueryLatencyBurn"),
        ({"canary": [CanarySignal("logs", 5, 0.0, 1.0, 2.0, 1, 0)]}, "LakerunnerCanaryLost"),
        ({"canary": [CanarySignal("logs", 5, 0.0, 1.0, 2.0, 0, 1)]}, "LakerunnerCanaryDoubled"),
        ({"canary": [CanarySignal("logs", 5, 301.0, 1.0, 2.0, 0, 0)]}, "LakerunnerCanaryLate"),
    ],
)  # fmt: skip
def test_each_condition(change: dict[str, object], name: str) -> None:
    assert names(replace(WELL, **change)) == [name]


def test_conditions_outside_the_index() -> None:
    assert names(WELL, dead=2) == ["LakerunnerDeadLetters"]
    assert names(WELL, bucket=BucketProbe(0.1, "refused")) == ["LakerunnerBucketDown"]
    assert names(WELL, bucket=BucketProbe(2.1)) == ["LakerunnerBucketSlow"]
