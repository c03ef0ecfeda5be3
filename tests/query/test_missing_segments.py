"""Segments that were lost, and snapshots that are too old: an answer is never silently short."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakerunner.index.ended_segments import mark_lost
from lakerunner.index.listing import mark_found
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.plan import snapshots
from lakerunner.query.plan.snapshots import SnapshotTooOld
from lakerunner.query.series.times import QueryTimes
from tests.query.lake_of_logs import HOURS, ROWS, write_logs
from tests.query.lake_of_series import LakeOfSeries, lake_of_series

HOUR_MS = 3_600_000


@pytest.fixture
def lake(tmp_path: Path, database_url: str) -> Iterator[LakeOfSeries]:
    with lake_of_series(tmp_path, database_url) as made:
        yield made


def answer(lake: LakeOfSeries, org_id: uuid.UUID, first_hour: int, last_hour: int) -> tuple[int, list[str]]:
    """The number of rows between two hours, and the warnings."""
    times = QueryTimes(first_hour * HOUR_MS, last_hour * HOUR_MS, 0)
    query = lake.lake.query(org_id)
    plan = language("rows").compile("", times, QueryOptions(signal="logs"))
    rows = sum(batch.num_rows for batch in query.rows(plan))  # type: ignore[arg-type]
    return rows, list(query.stats.warnings())


def test_a_lost_segment_is_named_in_answers_about_its_time(lake: LakeOfSeries) -> None:
    org_id = uuid.uuid4()
    segments = write_logs(lake, org_id)
    assert answer(lake, org_id, 0, HOURS) == (len(segments) * ROWS, [])
    with lake.database.transaction() as tx:
        assert mark_lost(tx, segments[2], ["its object"])
    rows, (warning,) = answer(lake, org_id, 0, HOURS)
    assert rows == (len(segments) - 1) * ROWS
    assert str(segments[2].segment_id) in warning
    assert warning.startswith("rows of logs from 1970-01-01T01:00:00Z to 1970-01-01T01:39:")
    assert answer(lake, org_id, 3, HOURS)[1] == []
    assert answer(lake, uuid.uuid4(), 0, HOURS)[1] == []
    with lake.database.transaction() as tx:
        mark_found(tx, [segments[2]])
    assert answer(lake, org_id, 0, HOURS) == (len(segments) * ROWS, [])


def test_a_snapshot_older_than_the_grace_period_is_refused(lake: LakeOfSeries, monkeypatch: pytest.MonkeyPatch) -> None:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    query = lake.lake.query(org_id)
    plan = language("rows").compile("", QueryTimes(0, HOURS * HOUR_MS, 0), QueryOptions(signal="logs"))
    batches = query.rows(plan)  # type: ignore[arg-type]
    next(batches)
    later_s = time.monotonic() + lake.settings.sweep.grace_s + 1
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "time", SimpleNamespace(monotonic=lambda: later_s))
        with pytest.raises(SnapshotTooOld, match=r"older than sweep.grace_s") as refused:
            list(batches)
        assert refused.value.code == "snapshot_too_old"
        with pytest.raises(SnapshotTooOld):
            list(query.rows(plan))  # type: ignore[arg-type]
    rows, warnings = answer(lake, org_id, 0, HOURS)
    assert rows == HOURS * 2 * ROWS and not warnings
