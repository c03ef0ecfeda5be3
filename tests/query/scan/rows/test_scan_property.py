"""Whatever the rows, their types and places, the scan gives what a plain loop over Python rows gives."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.model.signals.logs import LOGS
from lakerunner.query.scan.rows import opened, segment, time_slices, unordered
from lakerunner.query.scan.rows import scan as scanning
from lakerunner.query.scan.rows.conditions.predicate import (
    And,
    Bool,
    Column,
    Compare,
    Contains,
    Duration,
    Exists,
    FirstOf,
    Float,
    In,
    Int,
    Key,
    Matches,
    Not,
    Op,
    Or,
    Predicate,
    Text,
    Time,
    from_json,
    to_json,
)
from lakerunner.query.scan.rows.filter_bytes import SegmentFilters, packed_filters
from lakerunner.query.scan.rows.request import RowScan, RowTally
from tests.examples import examples
from tests.query.scan.rows.lake_of_rows import LakeOfRows, small_groups, small_pages
from tests.query.scan.rows.naive import satisfies, text_of

_TEXTS = st.sampled_from(
    ["", "a", "ab", "7", "7.5", "-3", "true", "+7", "1e3", "inf", "nan", "é", "line\nbreak", "x" * 40]
)
_INTS = st.sampled_from([-3, 0, 7, 8, 1 << 53, (1 << 53) + 1, (1 << 63) - 1])
_FLOATS = st.sampled_from([-3.0, 0.5, 7.0, 7.5, float(1 << 53), float("inf"), float("nan")])
_KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), _TEXTS),
    "int": (pa.int64(), _INTS),
    "float": (pa.float64(), _FLOATS),
    "bool": (pa.bool_(), st.booleans()),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), _TEXTS),
}
_ATTRIBUTES = ("attr_a", "attr_b_c", "resource_a")
_TIMES = st.integers(0, 12).map(lambda step: 1_700_000_000_000_000_000 + step * 700)

_REFS = st.sampled_from(
    [
        *map(
            Column,
            (*_ATTRIBUTES, "service_name", "severity_number", "message", "timestamp", "trace_id", "attr_none", "x"),
        ),
        Key("a"),
        Key("b.c"),
        Key("service.name"),
        FirstOf(("attr_none", "attr_b_c", "resource_a")),
        FirstOf(("trace_id", "message")),
    ]
)
#: Times are numbers: whether one holds a text is not a question that filters answer.
_TEXT_REFS = _REFS.filter(lambda ref: ref != Column("timestamp"))
_LITERALS = st.one_of(
    _TEXTS.map(Text),
    _INTS.map(Int),
    st.just(Int(1 << 70)),
    _FLOATS.map(Float),
    st.booleans().map(Bool),
    _TIMES.map(Time),
    _INTS.map(Duration),
)
_LEAVES: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(Compare, _REFS, st.sampled_from(Op), _LITERALS),
    st.builds(In, _REFS, st.lists(_LITERALS, max_size=6).map(tuple)),
    st.builds(Matches, _TEXT_REFS, st.sampled_from(["", "a.*", "7", "[0-9]+", "l.*k", "(?i)A"]), st.booleans()),
    st.builds(Contains, _TEXT_REFS, st.sampled_from(["", "a", "7", "rue"])),
    st.builds(Exists, _REFS),
)
_PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: Or(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=6,
)


@st.composite
def _segments(draw: st.DrawFn) -> list[tuple[list[dict[str, Any]], dict[str, pa.DataType]]]:
    found = []
    for _ in range(draw(st.integers(1, 3))):
        # None: the attribute is in the overflow of this segment.
        kinds = {name: draw(st.sampled_from([*_KINDS, None])) for name in _ATTRIBUTES}
        fields: dict[str, st.SearchStrategy[Any]] = {
            "timestamp": _TIMES,
            "service_name": st.sampled_from([None, "a", "ab", "b"]),
            "severity_number": st.sampled_from([None, 5, 7, 17]),
            "message": st.one_of(st.none(), _TEXTS),
            "trace_id": st.sampled_from([None, "a" * 32, "b" * 32]),
        }
        for name, kind in kinds.items():
            values = _KINDS[kind][1] if kind else _TEXTS
            fields[name] = st.one_of(st.none(), values)
        rows = draw(st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=40))
        rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
        found.append((rows, {name: _KINDS[kind][0] for name, kind in kinds.items() if kind}))
    return found


@pytest.mark.parametrize("mode", ["late", "merged", "unordered"])
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    segments=_segments(),
    predicate=_PREDICATES,
    newest=st.booleans(),
    limit=st.one_of(st.none(), st.integers(0, 30)),
    start=st.one_of(st.none(), _TIMES),
    end=st.one_of(st.none(), _TIMES),
    data=st.data(),
)
def test_the_scan_gives_what_a_plain_loop_gives(
    mode: str,
    segments: list[tuple[list[dict[str, Any]], dict[str, pa.DataType]]],
    predicate: Predicate,
    newest: bool,
    limit: int | None,
    start: int | None,
    end: int | None,
    data: st.DataObject,
) -> None:
    # As text: NaN is not equal to itself.
    assert repr(from_json(to_json(predicate))) == repr(predicate)
    columns = ("attr_a", "resource_a", "message", "attr_none") if data.draw(st.booleans()) else None
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        small_groups(patch, data.draw(st.sampled_from([4, 16])))
        small_pages(patch, data.draw(st.sampled_from([1, 3, 1_000])))
        if data.draw(st.booleans()):
            patch.setattr(opened, "SMALL_BYTES", 0)
        if data.draw(st.booleans()):
            patch.setattr(unordered, "_SMALL_ROWS", 0)
        patch.setattr(segment, "_FIRST_ROWS", data.draw(st.sampled_from([1, 3, 512])))
        if mode == "merged":
            patch.setattr(scanning, "LATE_ROWS", -1)
            patch.setattr(time_slices, "_LEAST_BYTES", data.draw(st.sampled_from([1, 300, 1 << 23])))
            patch.setattr(time_slices, "_ALL_BYTES", 1)
        lake = LakeOfRows(Path(name), decoded_bytes=data.draw(st.sampled_from([0, 1 << 20])))
        written = [lake.write(rows, types) for rows, types in segments]
        low, high = start if start is not None else 0, end if end is not None else 1 << 62
        scan = RowScan(LOGS, predicate, columns, low, high, newest, limit, mode != "unordered")
        # What earlier scans for the same, at other times, have found out must not change the answer.
        for _ in range(data.draw(st.integers(0, 2))):
            lake.scan(written, replace(scan, start_ns=0, end_ns=data.draw(st.sampled_from([high, 1 << 62]))))
        tally = RowTally()
        table = lake.scan(written, RowScan.from_json(scan.to_json()), tally)
        held = [SegmentFilters(packed_filters(lake.opener, each)) for each in written]
        excluded = [filters.excluded(each, predicate) for filters, each in zip(held, written, strict=True)]
    for (rows, _), found in zip(segments, excluded, strict=True):
        assert found is None or not any(satisfies(row, predicate) for row in rows)
    wanted = [
        row for rows, _ in segments for row in rows if low <= row["timestamp"] < high and satisfies(row, predicate)
    ]
    times = sorted((row["timestamp"] for row in wanted), reverse=newest)[:limit]
    got = [] if table is None else table.column("timestamp").cast(pa.int64()).to_pylist()
    if mode == "unordered":
        assert len(got) == len(times)
    else:
        assert got == times
    assert tally.rows == len(times)
    if table is None or len(times) != len(wanted):
        return
    names = [name for name in table.column_names if name in ("message", *_ATTRIBUTES)]
    given = [
        (row["timestamp"], tuple(_shown(row.get(name), table, name) for name in names))
        for row in _as_written(segments, predicate, low, high, table)
    ]
    kept = sorted(zip(got, zip(*(_values(table, name) for name in names), strict=True), strict=True), key=repr)
    assert kept == sorted(given, key=repr)


def _as_written(
    segments: list[tuple[list[dict[str, Any]], dict[str, pa.DataType]]],
    predicate: Predicate,
    low: int,
    high: int,
    table: pa.Table,
) -> list[dict[str, Any]]:
    """The matching rows; with all columns asked for, what is in the overflow has no column."""
    asked = "attributes_overflow" not in table.column_names and "severity" not in table.column_names
    return [
        {name: value for name, value in row.items() if asked or name in types or name not in _ATTRIBUTES}
        for rows, types in segments
        for row in rows
        if low <= row["timestamp"] < high and satisfies(row, predicate)
    ]


def _shown(value: Any, table: pa.Table, name: str) -> Any:
    """A value in the column's unified type, as text."""
    kind = table.schema.field(name).type
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return text_of(float(value))
    return text_of(value)


def _values(table: pa.Table, name: str) -> list[Any]:
    return [None if value is None else text_of(value) for value in table.column(name).to_pylist()]
