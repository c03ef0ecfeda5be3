"""Log queries over row groups from which a stage leaves out all rows, or most of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakerunner.query.logql import ast
from lakerunner.query.logql.log_rows import LogQuery, log_rows
from lakerunner.query.logql.parser import parse
from lakerunner.query.scan.rows import opened
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.row_group.rows import Shape
from lakerunner.query.scan.rows.scan import scan_segments
from tests.query.scan.rows.lake_of_rows import LakeOfRows, small_groups, small_pages

_ROWS = 6_000


class _Source:
    def __init__(self, lake: LakeOfRows, segments: list[RowSegment]) -> None:
        self._lake, self._segments = lake, segments

    def rows(self, scan: RowScan, shape: Shape | None = None) -> Iterator[pa.RecordBatch]:
        tally = RowTally()
        return scan_segments(self._lake.opener, self._segments, scan, lambda _: None, tally, shape=shape)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Source:
    """Row groups of 1,500 records in pages that are read one by one; every thousandth has another user."""
    small_groups(monkeypatch, 1_500)
    small_pages(monkeypatch, 200)
    monkeypatch.setattr(opened, "SMALL_BYTES", 0)
    lake = LakeOfRows(tmp_path)
    rows = [
        {
            "timestamp": number,
            "service_name": "a",
            "message": f"line {number}",
            "attr_user": "rare" if number % 1_000 == 7 else "common",
            "attr_note": f"note {number}",
        }
        for number in range(_ROWS)
    ]
    types = {"attr_user": pa.string(), "attr_note": pa.string()}
    return _Source(lake, [lake.write(rows, types)])


@pytest.mark.parametrize(
    ("stages", "users"),
    [
        ('| line_format "{{.user}} {{__line__}}" |= "none "', []),
        ('| line_format "{{.user}} {{__line__}}" |= "rare "', ["rare"]),
        ('| label_format who="{{.user}}!" | who="rare!"', ["rare"]),
        ('| logfmt | user="none"', []),
        ('| regexp "line (?P<n>[0-9]+)" | n > 10000', []),
    ],
)
@pytest.mark.parametrize("limit", [2, 100, None])
def test_what_stages_leave(source: _Source, stages: str, users: list[str], limit: int | None) -> None:
    selector = parse(f'{{service_name="a"}} {stages}')
    assert isinstance(selector, ast.LogSelector)
    batches = list(log_rows(LogQuery(selector, 0, _ROWS, True, limit), source, lambda: None))
    times = [time.value for batch in batches for time in batch.column("timestamp")]
    wanted = [number for number in reversed(range(_ROWS)) if number % 1_000 == 7] if users else []
    assert times == wanted[:limit]
    assert all(f'"note":"note {time}"' in text for batch in batches for time, text in _notes(batch))


def _notes(batch: pa.RecordBatch) -> list[tuple[int, str]]:
    return [
        (time.value, text.as_py())
        for time, text in zip(batch.column("timestamp"), batch.column("metadata"), strict=True)
    ]
