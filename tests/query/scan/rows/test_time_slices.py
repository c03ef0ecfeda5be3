"""Segments whose rows do not fit into memory at once are read in slices of their time."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import LakeError
from lakerunner.model.signals.logs import LOGS
from lakerunner.query.scan.rows import time_slices
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.scan import scan_segments
from lakerunner.query.scan.rows.time_slices import TooLarge, bytes_at_once, can_be_cut, slices_of
from tests.query.scan.rows.lake_of_rows import LakeOfRows, small_groups, small_pages


def _segment(start_ns: int, end_ns: int) -> RowSegment:
    return RowSegment(uuid.UUID(int=start_ns), "key", 1, start_ns, end_ns)


@given(
    st.integers(0, 50), st.integers(1, 50), st.integers(0, 60), st.integers(1, 60), st.integers(2, 70), st.booleans()
)
def test_slices_are_the_time_of_the_segment(
    start: int, width: int, low: int, extent: int, count: int, newest: bool
) -> None:
    segment, scan = (
        _segment(start, start + width),
        RowScan(LOGS, start_ns=low, end_ns=low + extent, newest_first=newest),
    )
    if not can_be_cut(scan, segment):
        return
    found = [(each.start_ns, each.end_ns) for each in slices_of(scan, segment, count)]
    assert len(found) > 1
    moments = [moment for a, b in (found[::-1] if newest else found) for moment in range(a, b)]
    assert moments == list(range(max(low, start), min(low + extent, start + width)))


def test_segments_that_overlap_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slices, "_ALL_BYTES", 120)
    monkeypatch.setattr(time_slices, "_LEAST_BYTES", 30)
    hours = [_segment(hour * 10, hour * 10 + 10) for hour in range(24)]
    assert bytes_at_once(hours) == 120
    assert bytes_at_once([*hours, _segment(5, 6)]) == 60
    assert bytes_at_once([*hours, _segment(0, 240), _segment(35, 50)]) == 40
    assert bytes_at_once([_segment(0, 1)] * 100) == 30
    assert bytes_at_once([]) == 120


def test_the_number_of_slices_follows_from_what_was_read() -> None:
    assert TooLarge.of(101, 1.0, 100).slices == 2
    assert TooLarge.of(100, 0.1, 100).slices == 13
    assert TooLarge.of(100, 0.001, 100).slices == 64


def _rows(number: int) -> pa.Table:
    """Four services with the same times, some of them equal."""
    of_service = np.arange(number) * 700 // 2
    columns = {
        "timestamp": pa.array(np.concatenate([of_service] * 4)),
        "service_name": pa.array([name for name in "abcd" for _ in range(number)]),
        "message": pa.array([f"{name} {row} " + "x" * 200 for name in "abcd" for row in range(number)]),
    }
    fields = LOGS.rows.schema()
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(4 * number, field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=fields)


@pytest.mark.parametrize("newest", [True, False])
def test_the_rows_are_the_same_and_few_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: bool) -> None:
    small_groups(monkeypatch, 512)
    small_pages(monkeypatch, 64)
    lake = LakeOfRows(tmp_path)
    segments = [lake.write_table(_rows(2_000)) for _ in range(2)]
    scan = RowScan(LOGS, newest_first=newest)
    held: dict[bool, int] = {}
    tables = []
    for sliced in (False, True):
        if sliced:
            monkeypatch.setattr(time_slices, "_ALL_BYTES", 400_000)
            monkeypatch.setattr(time_slices, "_LEAST_BYTES", 1)
        seen, tally = [0], RowTally()
        tables.append(pa.Table.from_batches(scan_segments(lake.opener, segments, scan, seen.append, tally)))
        held[sliced] = max(seen)
        assert (tally.rows, tally.segments_opened) == (16_000, 2)
    assert tables[0].equals(tables[1].cast(tables[0].schema))
    assert held[False] > 1_500_000 and held[True] < 600_000


def test_a_segment_that_fails_between_slices_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slices, "_ALL_BYTES", 100_000)
    monkeypatch.setattr(time_slices, "_LEAST_BYTES", 1)
    small_groups(monkeypatch, 512)
    lake = LakeOfRows(tmp_path)
    segments = [lake.write_table(_rows(1_000)) for _ in range(2)]
    failed: list[uuid.UUID] = []

    def on_error(segment: RowSegment, error: LakeError) -> None:
        failed.append(segment.segment_id)

    tally, rows = RowTally(), 0
    for batch in scan_segments(lake.opener, segments, RowScan(LOGS), lambda _: None, tally, on_error):
        if not rows:
            lake.store.delete([segments[0].key])
            lake.cache.discard(segments[0].key)
            lake.opener.discard(segments[0].key)
        rows += batch.num_rows
    assert failed == [segments[0].segment_id] == list(tally.failed)
    assert 4_000 < rows < 8_000
