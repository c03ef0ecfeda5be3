"""What a scan leaves unread, how it ends early, and what it does about bad bytes."""

from __future__ import annotations

import functools
import re
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.unify_tables import unify_tables
from lakerunner.model.errors import BadInput, LakeError, LimitHit, Unavailable
from lakerunner.model.signals.logs import LOGS
from lakerunner.model.signals.metrics import METRICS
from lakerunner.model.signals.traces import TRACES
from lakerunner.query.metrics import SCAN_ERRORS
from lakerunner.query.rows.parser import parse
from lakerunner.query.scan.rows import opened
from lakerunner.query.scan.rows.conditions.predicate import Bool, Column, Compare, Matches, Not, Op
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.row_group.group import GroupReader
from lakerunner.query.scan.rows.scan import scan_segments
from tests.query.bit_rot import rotten
from tests.query.scan.rows.lake_of_rows import LakeOfRows, small_groups, small_pages

S = 1_000_000_000
#: More rows than one page holds.
MANY = 65_000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeOfRows:
    """Every object is read in ranges."""
    monkeypatch.setattr(opened, "SMALL_BYTES", 0)
    return LakeOfRows(tmp_path)


@functools.cache
def many_logs(start_ns: int = 0, rows: int = MANY) -> pa.Table:
    """Two services, a wide and incompressible message, a distinct trace in every row."""
    random = np.random.default_rng(3)
    half = rows // 2
    columns: dict[str, Any] = {
        "timestamp": pa.array(start_ns + np.arange(rows) % half * 1_000_003),
        "service_name": pa.array(["a"] * half + ["b"] * (rows - half)),
        "severity_number": pa.array(np.where(np.arange(rows) % 100, 9, 17)),
        "message": pa.array([f"{number:08}:{random.bytes(26).hex()}" for number in range(rows)]),
        "trace_id": pa.array([f"{number:032x}" for number in range(0, 2 * rows, 2)]),
    }
    fields = LOGS.rows.schema()
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in fields
    ]
    table = pa.Table.from_arrays(arrays, schema=fields)
    return table.append_column("attr_wide", pa.array([random.bytes(30).hex() for _ in range(rows)]))


def logs(times: list[int], **values: Any) -> list[dict[str, Any]]:
    return [{"timestamp": time, "service_name": "a", **values} for time in times]


def test_newest_rows_decode_wide_columns_of_one_page_only(lake: LakeOfRows) -> None:
    segment = lake.write_table(many_logs())
    tally = RowTally()
    table = lake.scan([segment], RowScan(LOGS, parse('service_name = "a"'), limit=50), tally)
    assert table is not None
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert times == [(MANY // 2 - 1 - number) * 1_000_003 for number in range(50)]
    assert tally.groups == 1
    # Of four pages of each wide column one is read.
    assert tally.read_bytes < 0.45 * segment.size_bytes


def test_bloom_filters_exclude_an_absent_trace(lake: LakeOfRows, monkeypatch: pytest.MonkeyPatch) -> None:
    small_groups(monkeypatch, 10_000)
    segment = lake.write_table(many_logs())
    # Between traces that there are, so that bounds do not exclude it.
    for number, rows in ((30_001, 0), (30_000, 1)):
        tally = RowTally()
        table = lake.scan([segment], RowScan(LOGS, parse(f'trace_id = "{number:032x}"')), tally)
        assert (0 if table is None else table.num_rows) == rows
        assert tally.groups == 7
        assert tally.pruned_by_statistics == 6
        assert tally.pruned_by_bloom == 1 - rows
    tally = RowTally()
    lake.opener.forget()
    lake.scan([segment], RowScan(LOGS, parse(f'trace_id = "{30_001:032x}"'), limit=10), tally)
    assert tally.decoded == 0
    assert tally.read_bytes < 0.01 * segment.size_bytes


def test_an_absent_text_is_excluded_by_two_blocks_of_a_needle_filter(
    lake: LakeOfRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = pa.array([f"request {number:08x} took {number % 977} ms" for number in range(MANY)])
    table = many_logs()
    segment = lake.write_table(table.set_column(table.schema.get_field_index("message"), "message", messages))
    reads: list[list[int]] = []
    original = GroupReader.read
    monkeypatch.setattr(
        GroupReader, "read", lambda self, ranges: reads.append([size for _, size in ranges]) or original(self, ranges)
    )
    tally = RowTally()
    assert lake.scan([segment], RowScan(LOGS, parse('message contains "0123456789abcdefghijklmnop"')), tally) is None
    assert tally.pruned_by_needles == tally.groups
    assert reads == [[32, 32]] * tally.groups


def test_needle_filters_exclude_an_absent_text(lake: LakeOfRows, monkeypatch: pytest.MonkeyPatch) -> None:
    small_groups(monkeypatch, 10_000)
    table = many_logs()
    messages = [f"charged order {number // 10:08} in {number % 10} s" for number in range(MANY)]
    table = table.set_column(table.schema.get_field_index("message"), "message", pa.array(messages))
    segment = lake.write_table(table)
    for text, rows in ((messages[30_000][4:], 1), ("harged order 98765432 in", 0)):
        tally = RowTally()
        found = lake.scan([segment], RowScan(LOGS, parse(f'message contains "{text}"')), tally)
        assert (0 if found is None else found.num_rows) == rows
        assert (tally.groups, tally.pruned_by_needles) == (7, 7 - rows)
    patterns = {"order 00003000.in 5": 1, "order (98765432|98765433) in": 0, "^refunded order [0-9]+|order 98765432": 0}
    for pattern, rows in patterns.items():
        tally = RowTally()
        found = lake.scan([segment], RowScan(LOGS, Matches(Column("message"), pattern, anchored=False)), tally)
        assert (0 if found is None else found.num_rows) == rows
        assert tally.pruned_by_needles == 7 - rows
    tally = RowTally()
    lake.opener.forget()
    lake.scan([segment], RowScan(LOGS, parse('message contains "harged order 98765432 in"'), limit=10), tally)
    assert tally.decoded == 0
    assert tally.read_bytes < 0.02 * segment.size_bytes


def test_statistics_exclude_row_groups(lake: LakeOfRows, monkeypatch: pytest.MonkeyPatch) -> None:
    small_groups(monkeypatch, 10)
    segment = lake.write([{"timestamp": number, "service_name": f"s{number // 10:02}"} for number in range(100)])
    tally = RowTally()
    table = lake.scan([segment], RowScan(LOGS, parse('service_name = "s04"')), tally)
    assert table is not None and table.num_rows == 10
    assert (tally.groups, tally.pruned_by_statistics) == (10, 9)


def test_page_bounds_exclude_a_group(lake: LakeOfRows) -> None:
    segment = lake.write_table(with_values(many_logs(), "severity"))
    tally = RowTally()
    # A text between the pages' bounds, though within those of the group.
    assert lake.scan([segment], RowScan(LOGS, parse('severity = "b"')), tally) is None
    assert (tally.pruned_by_statistics, tally.pruned_by_pages) == (0, 1)


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ('service_name = "a"', 20_000),
        ('not service_name = "a"', MANY - 20_000),
        ('service_name in ("b", "c")', MANY - 20_000),
        ('service_name = "a" and message contains "77"', None),
        ('service_name = "a" or severity = "a"', 20_000),
    ],
)
def test_rows_of_a_service_are_found_by_runs(lake: LakeOfRows, condition: str, count: int | None) -> None:
    table = with_values(with_values(many_logs(), "service_name"), "severity")
    segment = lake.write_table(table)
    tally = RowTally()
    found = lake.scan([segment], RowScan(LOGS, parse(condition), ("span_id",)), tally)
    assert found is not None
    if count is None:
        count = sum("77" in line for line in table.column("message").to_pylist()[:20_000])
    assert found.num_rows == count
    # The time in two columns, and what the condition reads beside the service.
    assert tally.decoded <= 4


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    ("condition", "expression"),
    [
        ('message =~ "[0-9a-f:]+"', "[0-9a-f:]+"),
        ('not message =~ ".*0"', ".*[^0]"),
        ('message contains "7"', ".*7.*"),
        ('message contains ":" and message =~ "000326.*"', "000326.*"),
    ],
)
def test_lines_that_a_filter_keeps_are_those_of_their_rows(
    lake: LakeOfRows, condition: str, expression: str, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pages of other rows are not read, so that texts have other places than rows.
    small_pages(monkeypatch, 2_000)
    table = many_logs()
    segment = lake.write_table(table)
    scan = RowScan(LOGS, parse(f'service_name = "b" and {condition}'), ("message", "trace_id"), ordered=ordered)
    tally = RowTally()
    found = lake.scan([segment], scan, tally)
    assert found is not None and tally.pruned_by_pages == 0
    line_of = dict(zip(table.column("trace_id").to_pylist(), table.column("message").to_pylist(), strict=True))
    lines = found.column("message").to_pylist()
    assert lines == [line_of[trace] for trace in found.column("trace_id").to_pylist()]
    kept = [line for line in table.column("message").to_pylist()[MANY // 2 :] if re.fullmatch(expression, line)]
    assert sorted(lines) == sorted(kept)


def test_services_that_a_group_does_not_have_exclude_it(lake: LakeOfRows) -> None:
    segment = lake.write_table(with_values(many_logs(), "service_name"))
    for condition in ('service_name = "b"', 'service_name =~ "b.*"', 'service_name in ("b", "d")'):
        tally = RowTally()
        assert lake.scan([segment], RowScan(LOGS, parse(condition)), tally) is None
        assert (tally.pruned_by_statistics, tally.decoded) == (1, 0)


def with_values(table: pa.Table, column: str) -> pa.Table:
    """The table with one value in its first rows, and another in the others."""
    values = pa.array(["a"] * 20_000 + ["c"] * (MANY - 20_000))
    return table.set_column(table.schema.get_field_index(column), column, values)


def test_segments_older_than_the_last_row_are_not_opened(lake: LakeOfRows) -> None:
    segments = [lake.write(logs(list(range(start * S, start * S + 20)))) for start in range(5)]
    for newest, wanted in ((True, 4 * S + 19), (False, 0)):
        tally = RowTally()
        table = lake.scan(segments, RowScan(LOGS, newest_first=newest, limit=10), tally)
        assert table is not None
        assert table.column("timestamp").cast(pa.int64())[0].as_py() == wanted
        assert (tally.segments_opened, tally.segments_passed) == (1, 4)


def test_overlapping_segments_are_merged(lake: LakeOfRows) -> None:
    segments = [lake.write(logs(list(range(start, 300, 3)))) for start in range(3)]
    for limit in (None, 100):
        table = lake.scan(segments, RowScan(LOGS, newest_first=False, limit=limit))
        assert table is not None
        assert table.column("timestamp").cast(pa.int64()).to_pylist() == list(range(limit or 300))


def test_a_repeated_scan_decodes_nothing(tmp_path: Path) -> None:
    lake = LakeOfRows(tmp_path, decoded_bytes=1 << 24)
    segment = lake.write(logs(list(range(1_000)), message="x"))
    decoded = []
    for _ in range(4):
        tally = RowTally()
        lake.scan([segment], RowScan(LOGS, parse('message contains "x"'), limit=5), tally)
        decoded.append(tally.decoded)
    assert decoded[0] == decoded[1] > 0
    assert decoded[2:] == [0, 0]


@pytest.mark.parametrize("limit", [10, None])
def test_a_scan_ends_when_it_is_no_longer_wanted(lake: LakeOfRows, limit: int | None) -> None:
    segments = [lake.write(logs([start])) for start in range(50)]
    calls = 0

    def spend(held_bytes: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise LimitHit("cannot go on")

    tally = RowTally()
    with pytest.raises(LimitHit):
        list(scan_segments(lake.opener, segments, RowScan(LOGS, limit=limit), spend, tally))
    assert tally.segments_opened < 25
    assert calls == 21


@pytest.mark.parametrize("limit", [10, None])
def test_held_bytes_are_said(lake: LakeOfRows, limit: int | None) -> None:
    segment = lake.write_table(many_logs())
    held: list[int] = []
    scan = RowScan(LOGS, parse("severity_number >= 0 and message exists"), limit=limit)
    for _ in scan_segments(lake.opener, [segment], scan, held.append, RowTally()):
        pass
    assert max(held) > (1_000_000 if limit is None else 0)


def damage(lake: LakeOfRows, segment: RowSegment) -> None:
    """The copy on the disk, not the object."""
    cached = lake.cache.get(segment.key)
    assert isinstance(cached.content, Path)
    cached.content.write_bytes(b"\x00" * (segment.size_bytes - 4) + b"PAR1")


@pytest.mark.parametrize("limit", [10, None])
def test_a_damaged_copy_is_discarded_and_fetched_again(lake: LakeOfRows, limit: int | None) -> None:
    segments = [lake.write(logs([start])) for start in range(3)]
    damage(lake, segments[1])
    tally = RowTally()
    table = lake.scan(segments, RowScan(LOGS, limit=limit), tally)
    assert table is not None and table.num_rows == 3
    assert not tally.failed


def test_damaged_pages_are_read_again(lake: LakeOfRows) -> None:
    segment = lake.write_table(many_logs(rows=2_000))
    cached = lake.cache.get(segment.key)
    assert isinstance(cached.content, Path)
    body = bytearray(cached.content.read_bytes())
    # The footer is whole, the pages are not.
    body[4 : len(body) // 2] = b"\xff" * (len(body) // 2 - 4)
    cached.content.write_bytes(body)
    for limit in (10, None):
        table = lake.scan([segment], RowScan(LOGS, limit=limit))
        assert table is not None and table.num_rows == (limit or 2_000)


@pytest.mark.parametrize("limit", [10, None])
def test_a_flipped_bit_is_noticed_by_its_checksum(lake: LakeOfRows, limit: int | None) -> None:
    segment = lake.write_table(many_logs(rows=2_000))
    expected = lake.scan([segment], RowScan(LOGS, limit=limit))
    cached = lake.cache.get(segment.key)
    assert isinstance(cached.content, Path)
    bad = rotten(cached.content.read_bytes(), "message")
    cached.content.write_bytes(bad)
    again = lake.scan([segment], RowScan(LOGS, limit=limit))
    assert again is not None and again.equals(expected)
    if limit is None:
        # All pages are read now, so a rotten object is noticed wherever the bit is.
        lake.cache.discard(segment.key)
        lake.opener.discard(segment.key)
        lake.store.put(segment.key, bad, create_only=False)
        counted = SCAN_ERRORS.labels("bad_bytes")._value.get()
        with pytest.raises(Unavailable, match=f"{segment.segment_id}.*CRC.*the object in the store is damaged"):
            lake.scan([segment], RowScan(LOGS))
        assert SCAN_ERRORS.labels("bad_bytes")._value.get() == counted + 1


@pytest.mark.parametrize("limit", [10, None])
def test_a_damaged_object_is_named(lake: LakeOfRows, limit: int | None) -> None:
    segments = [lake.write(logs([start])) for start in range(3)]
    lake.store.put(segments[1].key, b"\x00" * segments[1].size_bytes, create_only=False)
    with pytest.raises(Unavailable, match=str(segments[1].segment_id)):
        lake.scan(segments, RowScan(LOGS, limit=limit))
    seen: list[uuid.UUID] = []

    def on_error(segment: RowSegment, error: LakeError) -> None:
        seen.append(segment.segment_id)

    tally = RowTally()
    scan = RowScan(LOGS, limit=limit)
    batches = list(scan_segments(lake.opener, segments, scan, lambda held_bytes: None, tally, on_error))
    assert sum(batch.num_rows for batch in batches) == 2
    assert seen == [segments[1].segment_id] == list(tally.failed)
    assert str(segments[1].segment_id) in tally.failed[segments[1].segment_id]


def test_an_absent_object_fails_its_segment_alone(lake: LakeOfRows) -> None:
    segments = [lake.write(logs([start])) for start in range(2)]
    lake.store.delete([segments[0].key])
    tally = RowTally()
    scan = RowScan(LOGS, limit=5)
    skip = scan_segments(lake.opener, segments, scan, lambda held_bytes: None, tally, lambda segment, error: None)
    assert sum(batch.num_rows for batch in skip) == 1
    assert list(tally.failed) == [segments[0].segment_id]


def test_an_object_that_was_read_for_the_most_part_is_kept(lake: LakeOfRows) -> None:
    segment = lake.write_table(many_logs(rows=3_000))
    lake.scan([segment], RowScan(LOGS, parse("message exists")))
    assert lake.cache.find(segment.key) is None
    lake.scan([segment], RowScan(LOGS, parse("message exists")))
    assert lake.cache.find(segment.key) is not None


def test_types_of_segments_are_unified(lake: LakeOfRows) -> None:
    kinds = {"attr_number": [1, 2.5], "attr_mixed": [1, "x"], "attr_flag": [True, "x"], "attr_new": [None, 7]}
    segments = []
    for place in range(2):
        row = {name: values[place] for name, values in kinds.items() if values[place] is not None}
        types = {name: pa.scalar(value).type for name, value in row.items()}
        segments.append(lake.write(logs([place], **row), types))
    for limit in (5, None):
        table = lake.scan(segments, RowScan(LOGS, newest_first=False, limit=limit))
        assert table is not None
        assert table.column("attr_number").to_pylist() == [1.0, 2.5]
        assert table.column("attr_mixed").to_pylist() == ["1", "x"]
        assert table.column("attr_flag").to_pylist() == ["true", "x"]
        assert table.column("attr_new").type == pa.int64()
        assert table.column_names[: len(LOGS.rows.columns)] == LOGS.rows.schema().names


@pytest.mark.parametrize(
    ("where", "times"),
    [
        ("attr_n > 1.5", [1, 3, 5, 6]),
        ("attr_n = 2", [1, 3]),
        ('attr_n = "2"', [1, 3]),
        ('attr_n = "12345678901"', [6]),
        ('attr_n =~ "[a-z]+"', [4]),
        (f"attr_n = {2**53 + 1}", [5]),
        ("attr_n exists", [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_filter_finds_values_of_an_attribute_wherever_they_are_stored(
    lake: LakeOfRows, where: str, times: list[int]
) -> None:
    """As integers, as doubles, and in the overflow beside a column that cannot hold them."""
    ints = lake.write([*logs([0], attr_n=1), *logs([1], attr_n=2)], {"attr_n": pa.int64()})
    tables = [
        pa.Table.from_pylist(logs([at]), schema=LOGS.rows.schema()).append_column("attr_n", pa.array([value]))
        for at, value in enumerate((1.5, 2, "x", 2**53 + 1, 12_345_678_901), 2)
    ]
    mixed = lake.write_table(unify_tables(tables, LOGS.rows, types=AttributeTypes({"attr_n": "double"})))
    for limit in (10, None):
        scan = RowScan(LOGS, parse(where), columns=("attr_n",), newest_first=False, limit=limit)
        table = lake.scan([ints, mixed], scan)
        assert table is not None
        assert table.column("timestamp").cast(pa.int64()).to_pylist() == times


def test_the_event_time_and_absent_columns_are_in_the_answer(lake: LakeOfRows) -> None:
    segment = lake.write(logs([5], attr_spilled="x"))
    table = lake.scan([segment], RowScan(LOGS, columns=("attr_spilled", "attr_none"), limit=5))
    assert table is not None
    assert table.column_names == ["timestamp", "attr_spilled", "attr_none"]
    assert table.column("attr_spilled").to_pylist() == ["x"]
    assert table.column("attr_none").to_pylist() == [None]


def test_spans_keep_their_events(tmp_path: Path) -> None:
    lake = LakeOfRows(tmp_path, signal=TRACES)
    row = {
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
        "name": "GET",
        "start_timestamp": 1_234_567_891,
        "duration_ns": 300_000_000,
        "events": [{"timestamp": 1_234_567_999, "name": "retry"}],
        "attr_http_status": 500,
    }
    other = {**row, "trace_id": "c" * 32, "duration_ns": 1, "events": None}
    segment = lake.write([row, other], {"attr_http_status": pa.int64()})
    for limit in (5, None):
        scan = RowScan(TRACES, parse('duration_ns > 250ms and "http.status" = 500'), limit=limit)
        table = lake.scan([segment], scan)
        assert table is not None and table.num_rows == 1
        assert table.column("start_timestamp").cast(pa.int64()).to_pylist() == [1_234_567_891]
        events = table.column("events").combine_chunks().values
        assert events.field("timestamp").cast(pa.int64()).to_pylist() == [1_234_567_999]


def test_metrics_have_no_rows_to_scan() -> None:
    with pytest.raises(BadInput, match="metrics"):
        RowScan(METRICS)


def test_small_pages_are_read_one_by_one(lake: LakeOfRows, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch, 10)
    segment = lake.write(logs(list(range(100)), message="x", attr_a="y"), {"attr_a": pa.string()})
    (group,) = list_groups(lake, segment)
    found = group.page_bounds("timestamp")
    assert found is not None
    layout, bounds = found
    assert layout.first_rows.tolist() == list(range(0, 101, 10))
    assert [(one.low, one.high) for one in bounds] == [(0, 999)] * 10
    rows = np.array([3, 55, 56, 99])
    assert group.column("timestamp", rows).cast(pa.int64()).to_pylist() == rows.tolist()
    assert group.columns(["message", "attr_a"], rows)["attr_a"].to_pylist() == ["y"] * 4


def list_groups(lake: LakeOfRows, segment: RowSegment) -> list[GroupReader]:
    tally = RowTally()
    found = lake.opener.open(segment, tally)
    numbers = range(found.footer.metadata.num_row_groups)
    return [GroupReader(found, number, lambda held_bytes: None, tally) for number in numbers]


def test_a_boolean_has_no_order_by_bounds_either(lake: LakeOfRows) -> None:
    segment = lake.write(logs([1], attr_a=""), {"attr_a": pa.string()})
    below = Compare(Column("attr_a"), Op.LESS, Bool(False))
    assert lake.scan([segment], RowScan(LOGS, below)) is None
    table = lake.scan([segment], RowScan(LOGS, Not(below)))
    assert table is not None and table.num_rows == 1
