"""One lookup for a whole plan returns the segments of every want, each once, and no others."""

import uuid
from dataclasses import replace

import pytest

from lakerunner.index import lookup
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.lookup import Want, find, live_refs, load_segments
from lakerunner.index.segments import live_segments, ref
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import UNDATED, Pruning, Segment
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, TimeRange

ORG = uuid.UUID(int=7)
MIDNIGHT = 20_000 * NS_PER_DAY


def _segment(start_ns: int, end_ns: int, signal: str = "metrics") -> Segment:
    pruning = Pruning({"metric_name": ("a", "b")}, {"metric_name": ("a", "b")})
    return Segment(fresh_id(), ORG, "edge", signal, TimeRange(start_ns, end_ns), 10, 100, pruning=pruning)


def _commit(database: Database, *segments: Segment) -> None:
    item_id = uuid.uuid4()
    with database.transaction() as tx:
        create_item(tx, WorkItem(item_id, "ingest", ORG, "metrics"))
    assert commit_item(database, ItemResult(item_id, made=segments)) is Outcome.COMMITTED


def _found(database: Database, *wants: Want, org_id: uuid.UUID = ORG) -> set[uuid.UUID]:
    with database.transaction() as tx:
        refs = live_refs(tx, org_id, wants)
    assert len(set(refs)) == len(refs)
    return {one.segment_id for one in refs}


def test_wants_of_several_times_and_signals(database: Database) -> None:
    over = _segment(MIDNIGHT - NS_PER_HOUR, MIDNIGHT + 1)
    later = _segment(MIDNIGHT + NS_PER_HOUR, MIDNIGHT + 2 * NS_PER_HOUR)
    month = _segment(MIDNIGHT - 40 * NS_PER_DAY, MIDNIGHT - 40 * NS_PER_DAY + 1)
    logs = _segment(MIDNIGHT, MIDNIGHT + 1, "logs")
    coarse = replace(later, segment_id=fresh_id(), tier_s=60)
    foreign = replace(later, segment_id=fresh_id(), org_id=uuid.UUID(int=8))
    _commit(database, over, later, month, logs, coarse, foreign)
    today = TimeRange(MIDNIGHT, MIDNIGHT + NS_PER_DAY)

    assert _found(database, Want("metrics", today)) == {over.segment_id, later.segment_id}
    assert _found(database, Want("metrics", TimeRange(MIDNIGHT + 1, MIDNIGHT + NS_PER_HOUR))) == set()
    assert _found(database, Want("metrics", today, 60)) == {over.segment_id, later.segment_id, coarse.segment_id}
    then = TimeRange(month.time_range.start_ns, month.time_range.start_ns + 1)
    wants = [Want("metrics", today), Want("metrics", today), Want("metrics", then), Want("logs", today)]
    assert _found(database, *wants) == {one.segment_id for one in (over, later, month, logs)}
    assert _found(database, *wants, org_id=uuid.UUID(int=9)) == set()


def test_wide_and_far_segments_are_found_by_what_they_overlap(database: Database) -> None:
    """They share one partition, so no time that is sent makes a partition of its own."""
    wide = _segment(NS_PER_DAY, MIDNIGHT + 1)
    far = replace(_segment(250 * 365 * NS_PER_DAY, 250 * 365 * NS_PER_DAY + 1), is_dated=False)
    _commit(database, wide, far)
    assert not wide.is_dated and {ref(wide).dateint, ref(far).dateint} == {UNDATED}
    assert _found(database, Want("metrics", TimeRange(MIDNIGHT, MIDNIGHT + NS_PER_DAY))) == {wide.segment_id}
    assert _found(database, Want("metrics", TimeRange(5 * NS_PER_DAY, 6 * NS_PER_DAY))) == {wide.segment_id}
    assert _found(database, Want("metrics", TimeRange(MIDNIGHT + 1, MIDNIGHT + NS_PER_DAY))) == set()
    assert _found(database, Want("metrics", far.time_range), Want("logs", far.time_range)) == {far.segment_id}
    with database.transaction() as tx:
        assert load_segments(tx, [ref(wide)]) == [wide] and load_segments(tx, [ref(far)]) == [far]
        assert [each.segment_id for each in live_segments(tx, ORG, "metrics", far.time_range)] == [far.segment_id]
        months = tx.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^segment_[0-9]+$' AND relkind = 'r'"
        ).fetchall()
    assert [row["relname"] for row in months] == ["segment_0"]


def test_segments_are_described_as_they_were_made(database: Database) -> None:
    made = [_segment(MIDNIGHT, MIDNIGHT + 1), _segment(MIDNIGHT, MIDNIGHT + 5)]
    _commit(database, *made)
    with database.transaction() as tx:
        assert {one.segment_id: one for one in load_segments(tx, [ref(one) for one in made])} == {
            one.segment_id: one for one in made
        }
        assert load_segments(tx, []) == []


def test_a_lookup_of_rows_with_few_parameters_finds_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = _segment(MIDNIGHT, MIDNIGHT + 1, "logs")
    undated = replace(inside, segment_id=fresh_id(), time_range=TimeRange(1, MIDNIGHT + NS_PER_DAY), is_dated=False)
    others = [
        _segment(MIDNIGHT + NS_PER_DAY, MIDNIGHT + NS_PER_DAY + 1, "logs"),
        _segment(MIDNIGHT, MIDNIGHT + 1, "traces"),
        _segment(MIDNIGHT, MIDNIGHT + 1),
        replace(inside, segment_id=fresh_id(), org_id=uuid.UUID(int=8)),
    ]
    _commit(database, inside, undated, *others)
    for time_range in (
        TimeRange(MIDNIGHT, MIDNIGHT + NS_PER_DAY),
        TimeRange(MIDNIGHT + 1, MIDNIGHT + 2),
        TimeRange(0, (1 << 63) - 1),
        TimeRange(0, 1),
    ):
        want = Want("logs", time_range)
        few = database.read(lambda tx, want=want: find(tx, ORG, [want]))  # type: ignore[misc]
        with monkeypatch.context() as patch:
            patch.setattr(lookup, "RAW_TIER_S", -1)
            many = database.read(lambda tx, want=want: find(tx, ORG, [want]))  # type: ignore[misc]
        assert few == many
