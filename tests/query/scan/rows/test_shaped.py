"""Ordered scans whose rows the caller shapes, row group by row group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.model.signals.logs import LOGS
from lakerunner.query.rows.parser import parse
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.row_group.rows import Found
from lakerunner.query.scan.rows.scan import one_batch, scan_segments
from tests.query.scan.rows.lake_of_rows import LakeOfRows, small_groups

ROWS = 200


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeOfRows:
    small_groups(monkeypatch)
    return LakeOfRows(tmp_path)


def _write(lake: LakeOfRows) -> list[RowSegment]:
    """Two segments that overlap in time, with attributes that differ."""
    return [
        lake.write(
            [{"timestamp": 2 * n + half, "message": f"{n}", f"attr_{half}": n} for n in range(ROWS)],
            {f"attr_{half}": pa.int64()},
        )
        for half in range(2)
    ]


class _Shape:
    """Every third row, and the name of the attribute column that its segment has."""

    def part(self, found: Found) -> pa.RecordBatch:
        narrow = found.batch(["message"])
        places = np.flatnonzero([int(text) % 3 == 0 for text in narrow.column("message").to_pylist()])
        whole = found.chosen(places).batch(None)
        (name,) = (name for name in whole.schema.names if name.startswith("attr_"))
        named = pa.array([name] * whole.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([whole.column("timestamp"), named], ["timestamp", "from"])

    def whole(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return one_batch(parts)


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("limit", [None, 30])
def test_rows_are_ordered_after_shaping(lake: LakeOfRows, newest_first: bool, limit: int | None) -> None:
    scan = RowScan(LOGS, newest_first=newest_first, limit=limit)
    batches = list(scan_segments(lake.opener, _write(lake), scan, lambda _: None, RowTally(), shape=_Shape()))
    got = pa.Table.from_batches(batches)
    times = sorted(range(2 * ROWS), reverse=newest_first)[:limit]
    wanted = [time for time in times if time // 2 % 3 == 0]
    assert got.column("timestamp").cast(pa.int64()).to_pylist() == wanted
    assert got.column("from").to_pylist() == [f"attr_{time % 2}" for time in wanted]


class _Kept(_Shape):
    """What is made of rows that are kept: their messages. Counts how often it was made, and of how many rows."""

    def __init__(self, *, refuse: bool = False) -> None:
        self.made: list[int] = []
        self.found = 0
        self._refuse = refuse

    def part(self, found: Found) -> pa.RecordBatch:
        made = found.made("messages", ["timestamp", "message"], self._make)
        self.found += made is not None
        return found.batch(["timestamp", "message"]) if made is None else made

    def _make(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        self.made.append(rows.num_rows)
        return None if self._refuse else rows


@pytest.mark.parametrize("refuse", [True, False])
@pytest.mark.parametrize("where", ['message=~"[01]"', 'message=~"7"'])
def test_what_is_made_of_kept_rows_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, refuse: bool
) -> None:
    monkeypatch.setattr("lakerunner.query.scan.rows.segment._FIRST_ROWS", 60)
    lake = LakeOfRows(tmp_path, decoded_bytes=1 << 24)
    segments, shape = _write(lake), _Kept(refuse=refuse)
    for limit in (20, 20, 20, 60, 5):
        scan = RowScan(LOGS, parse(where), limit=limit)
        found = list(scan_segments(lake.opener, segments, scan, lambda _: None, RowTally(), shape=shape))
        plain = lake.scan(segments, RowScan(LOGS, parse(where), ("timestamp", "message"), limit=limit))
        got = pa.Table.from_batches(found)
        assert plain is not None and got.column("message").to_pylist() == plain.column("message").to_pylist()
    assert len(shape.made) == len(segments)
    assert bool(shape.found) is not refuse


@pytest.mark.parametrize("newest_first", [True, False])
def test_kept_rows_come_in_the_order_of_time_and_then_of_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest_first: bool
) -> None:
    monkeypatch.setattr("lakerunner.query.scan.rows.segment._FIRST_ROWS", 60)
    lake = LakeOfRows(tmp_path, decoded_bytes=1 << 24)
    times = np.random.default_rng(7).integers(0, 90, (2, ROWS))
    segments = [
        lake.write([{"timestamp": int(time), "message": f"{half} {n}"} for n, time in enumerate(times[half])])
        for half in range(2)
    ]
    shape = _Kept()
    for limit in (20, 20, 20, 60, 1, 33, 60):
        asked = RowScan(LOGS, parse('message=~"[01] .*[0-8]"'), newest_first=newest_first, limit=limit)
        (got,) = scan_segments(lake.opener, segments, asked, lambda _: None, RowTally(), shape=shape)
        plain = lake.scan(segments, replace(asked, columns=("timestamp", "message")))
        assert plain is not None and got.column("message").to_pylist() == plain.column("message").to_pylist()
    assert shape.found
