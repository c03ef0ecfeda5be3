"""After warming, a scan finds every kernel compiled."""

from __future__ import annotations

from pathlib import Path

from lakerunner.model.signals.logs import LOGS
from lakerunner.query.rows.parser import parse
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.warm import KERNELS, warm
from tests.query.scan.rows.lake_of_rows import LakeOfRows


def test_scans_compile_nothing_after_warming(tmp_path: Path) -> None:
    warm()
    compiled = [len(kernel.signatures) for kernel in KERNELS]
    assert all(compiled)
    lake = LakeOfRows(tmp_path)
    segment = lake.write([{"timestamp": number, "service_name": "a"} for number in range(10)])
    table = lake.scan([segment], RowScan(LOGS, parse("timestamp > 1970-01-01"), limit=3))
    assert table is not None and table.num_rows == 3
    assert [len(kernel.signatures) for kernel in KERNELS] == compiled
