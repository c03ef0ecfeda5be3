"""Rows that are counted where they are stored: the same numbers as those of a plain loop, or none."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import LakeError
from lakerunner.model.signals.logs import LOGS
from lakerunner.query.scan.rows.conditions.predicate import Column, Compare, Op, Text
from lakerunner.query.scan.rows.request import RowScan, RowTally
from lakerunner.query.scan.rows.row_group.row_counts import RowCounts
from lakerunner.query.scan.rows.row_group.rows import ReadableRows
from lakerunner.query.scan.rows.unordered import map_groups
from tests.examples import examples
from tests.query.scan.rows.lake_of_rows import LakeOfRows, small_groups, small_pages

_START_NS = 1_700_000_000_000_000_000
_COLUMNS = ("repeat", "severity", "severity_derived", "attr_severity")


def _counts(
    lake: LakeOfRows, rows: list[dict[str, Any]], edges: list[int], tally: RowTally | None = None
) -> list[RowCounts | None]:
    """What is counted in each row group of the rows of service a."""
    segment = lake.write(rows)
    return _again(lake, segment, edges, tally)


def _again(lake: LakeOfRows, segment: Any, edges: list[int], tally: RowTally | None = None) -> list[RowCounts | None]:
    found: list[RowCounts | None] = []

    def make(rows: ReadableRows) -> bool:
        found.append(rows.counts("timestamp", _COLUMNS, np.array(edges)))
        return True

    _mapped(lake, segment, make, tally)
    return found


def _mapped(
    lake: LakeOfRows, segment: Any, make: Callable[[ReadableRows], bool], tally: RowTally | None = None
) -> None:
    scan = RowScan(LOGS, Compare(Column("service_name"), Op.EQUAL, Text("a")), _COLUMNS, ordered=False)

    def fail(_: Any, error: LakeError) -> None:
        raise error

    list(map_groups(lake.opener, [segment], scan, lambda _: None, tally or RowTally(), fail, make))


def _added(found: list[RowCounts | None]) -> dict[tuple[str | None, int], int]:
    total: Counter[tuple[str | None, int]] = Counter()
    for each in found:
        assert each is not None
        assert each.counts.any(axis=1).all()
        for value, counts in zip(each.values, each.counts.tolist(), strict=True):
            total.update({(value, each.first + place): count for place, count in enumerate(counts) if count})
    return dict(total)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 9_000), st.sampled_from([None, "", "INFO", "WARN", "é"])),
        min_size=1,
        max_size=12,
    ),
    edges=st.lists(st.integers(-500, 9_500), min_size=1, max_size=9, unique=True),
)
@settings(max_examples=examples(60), deadline=None)
def test_counts_are_those_of_a_plain_loop(rows: list[tuple[str, int, str | None]], edges: list[int]) -> None:
    sorted_edges = sorted(_START_NS + edge for edge in edges)
    # Values that repeat have a dictionary.
    stored = [{"timestamp": _START_NS + ns, "service_name": name, "severity": text} for name, ns, text in rows * 20]
    compared = 0

    def compare(found: ReadableRows) -> bool:
        nonlocal compared
        counted = found.counts("timestamp", _COLUMNS, np.array(sorted_edges))
        if counted is not None:
            batch = found.batch(("timestamp", "severity"))
            times, texts = batch.column("timestamp").cast("int64").to_pylist(), batch.column("severity").to_pylist()
            intervals = (np.searchsorted(sorted_edges, times) - 1).tolist()
            assert _added([counted]) == Counter(
                (text, at) for text, at in zip(texts, intervals, strict=True) if 0 <= at < len(edges) - 1
            )
            compared += 1
        return True

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        small_groups(patch, 64)
        small_pages(patch, 5)
        lake = LakeOfRows(Path(folder))
        _mapped(lake, lake.write(stored), compare)
    event("counted" if compared else "not counted")


def _rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"timestamp": _START_NS + number * 1_000_000, "service_name": "a", "severity": "INFO", **more}
        for number in range(count)
    ]


_EDGES = [_START_NS - 1, _START_NS + 50_500_500, _START_NS + 10**9]


def test_rows_without_any_of_the_columns_are_counted(tmp_path: Path) -> None:
    (found,) = _counts(LakeOfRows(tmp_path), _rows(300, severity=None), _EDGES)
    assert found is not None
    assert (found.column, found.values, found.counts.tolist()) == (None, (None,), [[51, 249]])


def test_nanoseconds_are_read_where_a_time_is_at_an_edge(tmp_path: Path) -> None:
    lake, tally = LakeOfRows(tmp_path), RowTally()
    (found,) = _counts(lake, _rows(300), [_START_NS - 1, _START_NS + 50_000_000, _START_NS + 10**9], tally)
    assert found is not None
    assert (found.values, found.counts.tolist(), tally.decoded) == (("INFO",), [[51, 249]], 3)
    tally = RowTally()
    (found,) = _counts(lake, _rows(300), _EDGES, tally)
    assert found is not None and tally.decoded == 2


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(_rows(300, repeat=True), id="rows that repeat others"),
        pytest.param(_rows(300, severity_derived="severity"), id="two columns"),
        pytest.param(_rows(300, attr_severity="own"), id="a value in the overflow"),
    ],
)
def test_what_needs_more_than_one_column_is_read(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert _counts(LakeOfRows(tmp_path), rows, _EDGES) == [None]


def test_a_large_dictionary_is_not_read_for_it(tmp_path: Path) -> None:
    rows = [{**row, "severity": f"{number * 7_919:x}" * 3} for number, row in enumerate(_rows(5_000))]
    tally = RowTally()
    assert _counts(LakeOfRows(tmp_path), rows, _EDGES, tally) == [None]
    assert tally.decoded == 0


def test_columns_that_are_asked_for_again_are_read_and_kept(tmp_path: Path) -> None:
    lake = LakeOfRows(tmp_path, decoded_bytes=1 << 20)
    segment = lake.write(_rows(300))
    assert _again(lake, segment, _EDGES) != [None]
    assert _again(lake, segment, _EDGES) == [None]
