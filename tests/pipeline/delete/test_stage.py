"""Deletions beside other changes: exactly one effect, and no moment at which a deleted row is visible."""

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakerunner.index import work
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.deletions import cancel_deletion, receipt
from lakerunner.index.segments import insert_segments, live_segments, ref, supersede
from lakerunner.index.work import WorkItem
from lakerunner.model.deletion import DeletionState
from lakerunner.model.errors import BadInput, Conflict, Missing
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange
from lakerunner.ops.sweeping.retention import end_expired
from lakerunner.query.deletable import deletable
from lakerunner.query.syntax.errors import ParseError
from lakerunner.runtime.settings import RetentionSettings
from lakerunner.store import keys
from tests.pipeline.delete import deleting
from tests.query.lake_of_logs import HOUR_NS, write_logs
from tests.query.lake_of_series import LakeOfSeries, lake_of_series

MATCH = '{service_name="s1"}'


@pytest.fixture
def lake(tmp_path: Path, database_url: str) -> Iterator[LakeOfSeries]:
    with lake_of_series(tmp_path, database_url) as made:
        yield made


def live(lake: LakeOfSeries, org_id: uuid.UUID) -> list[Segment]:
    with lake.database.transaction() as tx:
        return live_segments(tx, org_id, "logs", TimeRange(0, 1 << 62))


def compacted(lake: LakeOfSeries, org_id: uuid.UUID, inputs: list[Segment], made: Segment) -> Outcome:
    """Another stage replaces segments."""
    item_id = work.item_id("compact", [each.segment_id for each in inputs])
    with lake.database.transaction() as tx:
        work.create_item(tx, WorkItem(item_id, "compact", org_id, "logs"))
    return commit_item(lake.database, ItemResult(item_id, [made], [ref(each) for each in inputs]))


def test_the_receipt_names_every_segment(lake: LakeOfSeries) -> None:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    deletion_id = deleting.request(lake.database, org_id, "logs", MATCH, HOUR_NS, 3 * HOUR_NS)
    assert set(deleting.work_off(lake.settings, lake.database)) == {Outcome.COMMITTED}
    done = deleting.found(lake.database, org_id, deletion_id)
    assert (done.state, done.segments, done.segments_done, done.rows_deleted) == (DeletionState.DONE, 4, 4, 40)
    with lake.database.transaction() as tx:
        rows = receipt(tx, deletion_id)
    assert [(row["state"], row["rows_before"], row["rows_after"]) for row in rows] == [("rewritten", 40, 30)] * 4
    for row in rows:
        for key, checksum in row["made"]["sha256"].items():
            assert len(checksum) == 64 and lake.store.head(key)
    assert deleting.work_off(lake.settings, lake.database) == []


def test_a_deletion_can_be_cancelled_while_it_waits(lake: LakeOfSeries) -> None:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    deletion_id = deleting.request(lake.database, org_id, "logs", MATCH, 0, HOUR_NS, wait_s=60.0)
    assert deleting.work_off(lake.settings, lake.database) == []
    with lake.database.transaction() as tx, pytest.raises(Missing):
        cancel_deletion(tx, uuid.uuid4(), deletion_id)
    with lake.database.transaction() as tx:
        assert cancel_deletion(tx, org_id, deletion_id).state is DeletionState.CANCELLED
    with lake.database.transaction() as tx, pytest.raises(Conflict, match="it is cancelled"):
        cancel_deletion(tx, org_id, deletion_id)
    assert sum(each.row_count for each in live(lake, org_id)) == 12 * 40


def test_a_compaction_of_the_same_segments_loses(lake: LakeOfSeries) -> None:
    org_id = uuid.uuid4()
    first, second, *_ = write_logs(lake, org_id)
    deleting.request(lake.database, org_id, "logs", MATCH, 0, HOUR_NS)
    assert compacted(lake, org_id, [first, second], _copy(lake, first)) is Outcome.STALE
    assert deleting.work_off(lake.settings, lake.database) == [Outcome.COMMITTED]
    assert sum(each.row_count for each in live(lake, org_id)) == 12 * 40 - 20
    rewritten = live(lake, org_id)[:2]
    assert compacted(lake, org_id, rewritten, _copy(lake, first)) is Outcome.COMMITTED


def test_an_attempt_that_comes_twice_or_late_changes_nothing(lake: LakeOfSeries) -> None:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    deletion_id = deleting.request(lake.database, org_id, "logs", MATCH, 0, HOUR_NS)
    (one,) = deleting.results(lake.settings, lake.database)
    # A later deletion of the same segments: the attempt does not know it, so it must not replace them.
    later = deleting.request(lake.database, org_id, "logs", '{service_name="s2"}', 0, HOUR_NS)
    assert commit_item(lake.database, one) is Outcome.STALE
    assert commit_item(lake.database, one) is Outcome.STALE
    assert deleting.work_off(lake.settings, lake.database) == [Outcome.COMMITTED]
    for each in (deletion_id, later):
        assert deleting.found(lake.database, org_id, each).state is DeletionState.DONE
    assert sum(each.row_count for each in live(lake, org_id)) == 12 * 40 - 40


def test_segments_that_expire_need_no_rewriting(lake: LakeOfSeries) -> None:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    deletion_id = deleting.request(lake.database, org_id, "logs", MATCH, 0, HOUR_NS)
    end_expired(lake.database, RetentionSettings(logs_s=60.0), None, lambda _: None)
    assert deleting.found(lake.database, org_id, deletion_id).state is DeletionState.DONE
    assert not live(lake, org_id)


@pytest.mark.parametrize(
    ("signal", "selector"),
    [
        ("metrics", "rate(up[5m])"),
        ("metrics", "up offset 5m"),
        ("metrics", "{"),
        ("logs", '{service_name="a"} | json'),
        ("logs", '{service_name="a"} |= ip("10.0.0.0/8")'),
        ("logs", 'sum(rate({service_name="a"}[1m]))'),
        ("traces", "{}"),
    ],
)
def test_what_is_not_exact_is_refused_at_its_position(signal: str, selector: str) -> None:
    with pytest.raises(ParseError) as refused:
        deletable(signal, selector)
    assert refused.value.where
    with pytest.raises(BadInput):
        deletable("rows", selector)


def _copy(lake: LakeOfSeries, segment: Segment) -> Segment:
    from dataclasses import replace

    from lakerunner.model.ids import fresh_id

    made = replace(segment, segment_id=fresh_id(), level=1)
    for old, new in zip(keys.segment_keys(segment), keys.segment_keys(made), strict=True):
        lake.store.put(new, lake.store.get(old))
    return made


def test_a_request_finds_what_a_commit_under_way_makes_of_all_its_segments(lake: LakeOfSeries) -> None:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    before = live(lake, org_id)
    merged = [replace(each, segment_id=uuid.uuid4()) for each in before]
    requested: list[uuid.UUID] = []

    def request() -> None:
        requested.append(deleting.request(lake.database, org_id, "logs", MATCH, 0, 1 << 60, 600.0))

    asking = threading.Thread(target=request)
    with lake.database.transaction() as tx:
        made_by = uuid.uuid4()
        assert supersede(tx, [ref(each) for each in before], made_by) == len(before)
        insert_segments(tx, merged, made_by)
        asking.start()
        waits = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR SHARE%'"
        for _ in range(200):
            with lake.database.transaction() as other:
                row = other.execute(waits).fetchone()
            if row is not None and row["n"]:
                break
            time.sleep(0.02)
        assert row is not None and row["n"], "the request does not wait for the commit"
    asking.join(10)
    found = deleting.found(lake.database, org_id, requested[0])
    assert found.segments == len(merged) > 0
