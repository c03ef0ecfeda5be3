"""What a round of the sweeper deletes, keeps, repairs and records."""

import uuid

import pytest

from lakerunner.index import orgs, retention, work
from lakerunner.index.segment_inputs import bind_segments
from lakerunner.index.segments import ref
from lakerunner.index.sweep_ledger import list_entries
from lakerunner.index.work import WorkItem
from lakerunner.model.errors import BadInput
from lakerunner.ops.sweeping.pace import Pace
from lakerunner.runtime.settings import RetentionSettings
from lakerunner.runtime.stop import Stop
from lakerunner.store import keys
from tests.ops.sweeping.swept_lake import DAY_S, ORG, SweptLake

OTHER = uuid.UUID(int=8)


def ledger(lake: SweptLake) -> list[tuple[str, str]]:
    with lake.database.transaction() as tx:
        return [(entry.what, entry.name) for entry in list_entries(tx, 100)]


def test_superseded_objects_are_deleted_after_the_grace_and_not_before(lake: SweptLake) -> None:
    old, kept = lake.live("metrics"), lake.live("metrics")
    merged = lake.segment("metrics")
    lake.commit(merged, supersedes=(old,))
    assert not lake.sweep().things
    assert lake.has(old)
    lake.age(old)
    assert [(each.what, each.name) for each in lake.would()] == [("segment", str(old.segment_id))]
    assert lake.has(old)
    assert lake.sweep().things == {"segment": 1}
    assert not lake.has(old)
    assert lake.state(old) is None
    assert all(lake.has(each) and lake.state(each) == "live" for each in (kept, merged))
    assert ledger(lake) == [("segment", str(old.segment_id))]
    assert not lake.sweep().things


def test_retention_is_by_event_time_per_org_signal_and_tier(lake: SweptLake) -> None:
    with lake.database.transaction() as tx:
        orgs.create_org(tx, "long", OTHER)
        retention.set_keep(
            tx, OTHER, {retention.kept_named("logs"): 0.0, retention.kept_named("metrics.1h"): 5 * DAY_S}
        )
    lake.set(RetentionSettings(logs_s=3 * DAY_S, metrics_1h_s=2 * DAY_S))
    gone = [lake.live(hours=96), lake.live("metrics", hours=96, tier_s=3_600)]
    kept = [
        lake.live(hours=48),
        lake.live(hours=96, org_id=OTHER),
        lake.live("metrics", hours=96, tier_s=3_600, org_id=OTHER),
        lake.live("metrics", hours=96, tier_s=60),
        lake.live("metrics", hours=96),
        lake.live("traces", hours=9_000),
    ]
    assert {each.name for each in lake.would() if each.what == "expired"} == {str(each.segment_id) for each in gone}
    assert lake.sweep().things == {"expired": 2}
    assert [lake.state(each) for each in gone] == ["deleted", "deleted"]
    # Queries that planned before still find the objects.
    assert all(lake.has(each) for each in gone)
    lake.age(*gone)
    assert lake.sweep().things == {"segment": 2}
    assert not any(lake.has(each) for each in gone)
    assert all(lake.has(each) and lake.state(each) == "live" for each in kept)


@pytest.mark.parametrize(("text", "seconds"), [("30d", 30 * DAY_S), ("forever", 0.0), ("1h30m", 5_400.0)])
def test_lengths_are_read(text: str, seconds: float) -> None:
    assert retention.read_length(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "30", "-3d", "3 parsecs"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="30d"):
        retention.read_length(text)
    with pytest.raises(BadInput, match="logs=30d"):
        retention.kept_named(text)


def test_an_item_whose_segments_are_gone_ends(lake: SweptLake) -> None:
    old = lake.live()
    waiting = work.item_id("rollup", [old.segment_id])
    with lake.database.transaction() as tx:
        work.create_item(tx, WorkItem(waiting, "rollup", ORG, "logs"))
        bind_segments(tx, "rollup", [ref(old)], waiting)
    lake.commit(lake.segment(), supersedes=(old,))
    lake.age(old)
    lake.sweep()
    with lake.database.transaction() as tx:
        row = tx.execute("SELECT state, reason FROM work_item WHERE item_id = %s", [waiting]).fetchone()
        held = tx.execute("SELECT FROM segment_input").fetchall()
    assert row == {"state": "stale", "reason": "its segments are gone"}
    assert not held


def test_orphans_are_deleted_once_they_are_old(lake: SweptLake) -> None:
    known, undated = lake.live("metrics"), lake.live(hours=30_000)
    orphan = lake.segment("metrics", collector="a/b c")
    lake.store.put("db/notes.txt", b"not ours")
    assert not [each for each in lake.would() if each.what == "orphan"], "an attempt under way"
    lake.set(orphan_grace_s=1e-9)
    found = lake.would()
    assert {each.name for each in found if each.what == "orphan"} == set(keys.segment_keys(orphan))
    assert [each.name for each in found if each.what == "foreign"] == ["db/notes.txt"]
    assert lake.sweep(listing=True).things == {"orphan": 2, "foreign": 1}
    assert not lake.has(orphan)
    assert lake.has(known)
    assert lake.has(undated)
    assert lake.store.get("db/notes.txt") == b"not ours"
    assert {what for what, _ in ledger(lake)} == {"orphan"}


def test_a_bucket_that_is_mostly_unknown_is_left_alone(lake: SweptLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.ops.sweeping.orphans._FEW", 2)
    orphans = [lake.segment() for _ in range(3)]
    lake.live()
    lake.set(orphan_grace_s=1e-9)
    assert not lake.sweep(listing=True).things
    assert all(lake.has(each) for each in orphans)


def test_a_segment_without_its_objects_is_lost_and_may_come_back(lake: SweptLake) -> None:
    segments = [lake.live("metrics", hours=hours) for hours in (1, 2, 30, 30_000)]
    victim = segments[1]
    samples, series = keys.segment_keys(victim)
    body = lake.store.get(series)
    lake.store.delete([series])
    found = [each for each in lake.would() if each.what == "lost"]
    assert [(each.name, each.rows) for each in found] == [(str(victim.segment_id), 10)]
    assert series in found[0].reason
    assert lake.sweep(listing=True).things == {"lost": 1}
    assert [lake.state(each) for each in segments] == ["live", "lost", "live", "live"]
    assert lake.store.head(samples), "what is left of it is kept"
    lake.store.put(series, body)
    assert lake.sweep(listing=True).things == {"found": 1}
    assert lake.state(victim) == "live"
    assert [what for what, _ in ledger(lake)] == ["found", "lost"]


def test_an_empty_bucket_is_a_wrong_bucket(lake: SweptLake) -> None:
    segments = [lake.live(), lake.live()]
    lake.store.delete([key for each in segments for key in keys.segment_keys(each)])
    assert not lake.sweep(listing=True).things
    assert [lake.state(each) for each in segments] == ["live", "live"]


def test_empty_partitions_of_old_months_are_dropped(lake: SweptLake) -> None:
    old = lake.live(hours=24 * 100)
    name = f"segment_{old.dateint // 100}"
    assert not [each for each in lake.would() if each.what == "partition"]
    lake.set(RetentionSettings(logs_s=DAY_S))
    lake.sweep()
    lake.age(old)
    assert lake.sweep().things == {"segment": 1, "partition": 1}
    with lake.database.transaction() as tx:
        assert not tx.execute("SELECT FROM pg_class WHERE relname = %s", [name]).fetchall()
    again = lake.live(hours=24 * 100)
    assert lake.state(again) == "live"


def test_a_round_deletes_so_many_objects_at_so_many_per_second() -> None:
    now = [0.0]
    waited: list[float] = []

    class Clocked(Stop):
        def wait(self, timeout_s: float) -> bool:
            waited.append(timeout_s)
            now[0] += timeout_s
            return False

    pace = Pace(10.0, 60, Clocked(), clock=lambda: now[0])
    while not pace.is_over:
        assert pace.take(20)
    assert waited == [2.0, 2.0]
    assert not Pace(10.0, 0).left
