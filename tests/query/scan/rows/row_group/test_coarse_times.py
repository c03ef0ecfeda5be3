"""Times without their nanoseconds lie in the same intervals as those with them, or are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.signals.logs import LOGS
from lakerunner.query.scan.rows.request import RowScan, RowTally
from lakerunner.query.scan.rows.row_group.coarse_times import coarse_times
from lakerunner.query.scan.rows.row_group.rows import ReadableRows
from lakerunner.query.scan.rows.unordered import map_groups
from tests.examples import examples
from tests.query.scan.rows.lake_of_rows import LakeOfRows

_US = pa.timestamp("us", "UTC")


@given(
    times=st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 999)), min_size=1),
    edges=st.lists(st.integers(-15_000, 15_000), min_size=1, max_size=12, unique=True),
)
@settings(max_examples=examples(150), deadline=None)
def test_intervals_are_those_of_exact_times(times: list[tuple[int, int]], edges: list[int]) -> None:
    whole = pa.array([microseconds for microseconds, _ in times], _US)
    sorted_edges = np.array(sorted(edges))
    found = coarse_times(whole, sorted_edges)
    near = {edge // 1_000 for edge in edges} & {microseconds for microseconds, _ in times}
    assert (found is None) == bool(near)
    if found is not None:
        exact = np.array([1_000 * microseconds + rest for microseconds, rest in times])
        coarse = found.view(pa.int64()).to_numpy()
        assert (np.searchsorted(sorted_edges, coarse) == np.searchsorted(sorted_edges, exact)).all()


@pytest.mark.parametrize("times", [pa.array([1, None], _US), pa.array([1], pa.timestamp("ns", "UTC"))])
def test_other_times_are_refused(times: pa.Array) -> None:
    assert coarse_times(times, np.array([0, 10_000])) is None


def test_nanoseconds_are_read_where_a_time_is_at_an_edge(tmp_path: Path) -> None:
    """Three records, one of them 7 ns after a whole millisecond."""
    lake = LakeOfRows(tmp_path)
    stamps = [1_000_000_001, 1_002_000_007, 1_005_000_123]

    def read(*edges: int) -> tuple[list[int], int]:
        tally = RowTally()

        def make(rows: ReadableRows) -> list[int]:
            batch = rows.batch(("timestamp",), edges=np.array(edges))
            return list(batch.column("timestamp").view(pa.int64()).to_pylist())

        scan = RowScan(LOGS, columns=("timestamp",), ordered=False)
        (found,) = map_groups(lake.opener, [segment], scan, lambda _: None, tally, lambda *_: None, make)
        return found, tally.decoded

    segment = lake.write([{"timestamp": stamp, "message": "m"} for stamp in stamps])
    coarse, decoded = read(0, 1_001_000_000, 2_000_000_000)
    assert sorted(coarse) == [1_000_000_000, 1_002_000_000, 1_005_000_000]
    exact, more = read(0, 1_002_000_000, 2_000_000_000)
    assert sorted(exact) == stamps
    assert more == decoded + 1
