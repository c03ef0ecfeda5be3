"""A sweeper that is killed between marking, deleting and recording leaves nothing half done for the next one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lakerunner.index.sweep_ledger import list_entries
from lakerunner.runtime.crash import VARIABLE
from lakerunner.runtime.settings import RetentionSettings
from lakerunner.store import keys
from tests.ops.sweeping.swept_lake import DAY_S, SweptLake

POINTS = [
    "sweep_before_expiry",
    "sweep_after_expiry",
    "sweep_before_delete",
    "sweep_half_deleted",
    "sweep_after_delete",
    "sweep_after_record",
    "sweep_before_orphans",
    "sweep_orphans_recorded",
    "sweep_after_orphans",
    "sweep_before_lost",
    "sweep_after_lost",
]


#: Those that `make test` kills at; all of them with LAKERUNNER_ALL_POINTS=1.
SLICE = [point for point in POINTS if "after_expiry" in point or "half" in point or "recorded" in point]


@pytest.mark.parametrize("point", POINTS if os.environ.get("LAKERUNNER_ALL_POINTS") else SLICE)
def test_the_next_round_finishes_what_a_killed_one_began(
    lake: SweptLake, database_url: str, tmp_path: Path, point: str
) -> None:
    kept = [lake.live(), lake.live("metrics"), lake.live(hours=30)]
    old, expired = lake.live("metrics"), lake.live(hours=24 * 10)
    merged = lake.segment("metrics")
    lake.commit(merged, supersedes=(old,))
    lake.age(old)
    orphan, victim = lake.segment(), lake.live("traces")
    lake.store.delete(keys.segment_keys(victim))
    killed = subprocess.run(
        [sys.executable, "-m", "tests.ops.sweeping.crashing", database_url, str(tmp_path), str(5 * DAY_S)],
        env={**os.environ, VARIABLE: point},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2_000:]
    assert all(lake.state(each) == "live" and lake.has(each) for each in (*kept, merged))
    lake.set(RetentionSettings(logs_s=5 * DAY_S), orphan_grace_s=1e-9)
    lake.sweep(listing=True)
    lake.age(expired)
    lake.sweep(listing=True)
    assert all(lake.state(each) == "live" and lake.has(each) for each in (*kept, merged))
    for gone in (old, expired, orphan):
        assert not lake.has(gone)
        assert lake.state(gone) is None
    assert lake.state(victim) == "lost"
    with lake.database.transaction() as tx:
        entries = [(entry.what, entry.name) for entry in list_entries(tx, 100)]
    named = {name for _, name in entries}
    assert {str(old.segment_id), str(expired.segment_id), str(victim.segment_id), *keys.segment_keys(orphan)} <= named
    assert len([each for each in entries if each[0] == "segment"]) == 2, "each segment is recorded once"
