"""Ordered scans whose rows the caller shapes, row group by row group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.model.signals.logs import LOGS
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.scan import one_batch, scan_segments
from lakerunner.query.scan.rows.segment import Found
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
