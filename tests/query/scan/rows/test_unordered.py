"""Scans in any order: what their batches look like, how they end, and what they do about bad bytes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.formats.attributes import keys_of, with_keys
from lakerunner.model.errors import LakeError, LimitHit
from lakerunner.model.hidden import HiddenRows
from lakerunner.model.signals.logs import LOGS
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.rows.parser import parse
from lakerunner.query.scan.hidden import predicate_condition
from lakerunner.query.scan.rows import opened, unordered
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.row_group import row_columns
from lakerunner.query.scan.rows.row_group import rows as group_rows
from lakerunner.query.scan.rows.row_group.rows import KeptForm, ReadableRows
from lakerunner.query.scan.rows.scan import scan_segments
from lakerunner.query.scan.rows.unordered import map_groups
from tests.query.bit_rot import rotten
from tests.query.scan.rows.lake_of_rows import LakeOfRows, small_groups

ROWS = 640
POOL = ThreadPoolExecutor(3)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeOfRows:
    """Every object is read in ranges, ten row groups each, all of them on the threads of the pool."""
    monkeypatch.setattr(opened, "SMALL_BYTES", 0)
    monkeypatch.setattr(unordered, "_SMALL_ROWS", 0)
    monkeypatch.setattr(row_columns, "_FEW_ROWS", 0)
    small_groups(monkeypatch)
    return LakeOfRows(tmp_path, decoded_bytes=1 << 20)


def table(start: int = 0) -> pa.Table:
    fields = LOGS.rows.schema()
    columns = {
        "timestamp": pa.array(range(start, start + ROWS)),
        "service_name": pa.array(["a"] * ROWS),
        "message": pa.array([f"line {number} of {ROWS}" for number in range(ROWS)]),
    }
    arrays = [
        columns[each.name].cast(each.type) if each.name in columns else pa.nulls(ROWS, each.type) for each in fields
    ]
    made = pa.Table.from_arrays(arrays, schema=fields).append_column(
        "attr_http_route", pa.array([f"/r/{number % 5}" for number in range(ROWS)])
    )
    return with_keys(made, {"attr_http_route": ["http.route"]})


def batches_of(
    lake: LakeOfRows,
    segments: list[RowSegment],
    scan: RowScan,
    tally: RowTally | None = None,
    spend: Callable[[int], None] = lambda held_bytes: None,
    on_error: Callable[[RowSegment, LakeError], None] = lambda segment, error: None,
) -> list[pa.RecordBatch]:
    return list(scan_segments(lake.opener, segments, scan, spend, tally or RowTally(), on_error, POOL))


def test_a_batch_keeps_dictionaries_and_names_original_keys(lake: LakeOfRows) -> None:
    segment = lake.write_table(table())
    scan = RowScan(LOGS, columns=("attr_http_route", "attr_absent"), ordered=False)
    found = batches_of(lake, [segment], scan)
    assert sorted(batch.num_rows for batch in found) == [64] * 10
    for batch in found:
        assert batch.schema.names == ["timestamp", "attr_http_route"]
        assert batch.schema.field("timestamp").type == pa.timestamp("ns", "UTC")
        assert pa.types.is_dictionary(batch.schema.field("attr_http_route").type)
        assert keys_of(batch.schema) == {"attr_http_route": ["http.route"]}


def test_decoded_columns_stay_in_memory(lake: LakeOfRows) -> None:
    segment = lake.write_table(table())
    scan = RowScan(LOGS, parse('message contains "3"'), ("attr_http_route",), ordered=False)
    rows = [sum(batch.num_rows for batch in batches_of(lake, [segment], scan)) for _ in range(2)]
    tally = RowTally()
    rows.append(sum(batch.num_rows for batch in batches_of(lake, [segment], scan, tally)))
    assert len(set(rows)) == 1
    assert tally.decoded == 0 and tally.decoded_hits > 0 and tally.read_bytes == 0


def test_a_few_pages_on_the_disk_are_read_by_the_thread_that_chose_them(lake: LakeOfRows) -> None:
    segment = lake.write_table(table())
    lake.cache.get(segment.key)
    threads: set[int] = set()

    def make(rows: ReadableRows) -> list[str]:
        threads.add(threading.get_ident())
        return rows.batch(("message",)).column("message").to_pylist()

    def lines(expression: str) -> list[str]:
        threads.clear()
        scan = RowScan(LOGS, parse(expression), ("message",), ordered=False)
        given = lake.opener, [segment], scan, lambda _: None, RowTally(), lambda *_: None, make, POOL
        return sorted(line for found in map_groups(*given) for line in found)

    expected = [f"line {number} of {ROWS}" for number in range(ROWS) if number % 5 == 3]
    assert lines('attr_http_route = "/r/3"') == sorted(expected)
    assert len(threads) == 1


def test_other_threads_go_on_while_the_caller_reads_a_row_group(lake: LakeOfRows) -> None:
    """A search in texts is shared. The caller's first row group takes until others have read three."""
    segment = lake.write_table(table())
    lake.cache.get(segment.key)
    caller, by_others, by_caller = threading.get_ident(), threading.Semaphore(0), []

    def make(rows: ReadableRows) -> int:
        if threading.get_ident() != caller:
            by_others.release()
        elif not by_caller:
            by_caller.append(all(by_others.acquire(timeout=20) for _ in range(3)))
        return rows.batch(("message",)).num_rows

    scan = RowScan(LOGS, parse('message contains "line"'), ("message",), ordered=False)
    given = lake.opener, [segment], scan, lambda _: None, RowTally(), lambda *_: None, make, POOL
    assert sum(map_groups(*given)) == ROWS
    assert by_caller == [True]


def test_texts_that_are_only_tested_are_kept_when_they_are_asked_for_again(lake: LakeOfRows) -> None:
    segment = lake.write_table(table())
    tallies = []
    for text in ("7", "8", "9", "10"):
        tallies.append(RowTally())
        scan = RowScan(LOGS, parse(f'message contains "{text}"'), ordered=False, columns=())
        found = sum(batch.num_rows for batch in batches_of(lake, [segment], scan, tallies[-1]))
        assert found == sum(text in f"line {number} of {ROWS}" for number in range(ROWS))
    assert tallies[0].decoded and tallies[0].read_bytes
    assert not tallies[2].read_bytes and not tallies[3].read_bytes


def test_times_are_not_read_if_one_interval_has_them_all(lake: LakeOfRows) -> None:
    """Ten groups of 64 rows, one in each millisecond."""
    whole = table()
    stamps = pa.array([number * NS_PER_MS for number in range(ROWS)]).cast(whole.schema.field("timestamp").type)
    segment = lake.write_table(whole.set_column(whole.schema.get_field_index("timestamp"), "timestamp", stamps))

    def times(*edges_ms: int) -> list[int | None]:
        edges = np.array(edges_ms, np.int64) * NS_PER_MS

        def make(rows: ReadableRows) -> list[int | None]:
            found = rows.one_time("timestamp", edges)
            assert len(rows) == 64
            return [None if found is None else found // NS_PER_MS]

        scan = RowScan(LOGS, columns=("timestamp",), ordered=False)
        given = lake.opener, [segment], scan, lambda _: None, RowTally(), lambda *_: None, make, POOL
        return [each for found in map_groups(*given) for each in found]

    assert all(found is not None and 0 <= found < ROWS for found in times(-1, ROWS))
    assert all(found is None for found in times(ROWS, 2 * ROWS))
    # An interval does not include its first edge; and one edge cuts a group.
    assert sum(found is None for found in times(0, ROWS)) == 1
    assert sum(found is None for found in times(-1, 100, ROWS)) == 1


def test_a_limit_ends_the_scan_early(lake: LakeOfRows) -> None:
    segments = [lake.write_table(table(start)) for start in range(0, 5 * ROWS, ROWS)]
    tally = RowTally()
    found = batches_of(lake, segments, RowScan(LOGS, limit=100, ordered=False), tally)
    assert sum(batch.num_rows for batch in found) == tally.rows == 100
    assert tally.segments_opened < len(segments)


def test_counts_of_all_threads_are_added(lake: LakeOfRows) -> None:
    segments = [lake.write_table(table(start)) for start in (0, ROWS)]
    tally = RowTally()
    batches_of(lake, segments, RowScan(LOGS, parse('attr_http_route = "/r/9"'), ordered=False), tally)
    assert (tally.segments_opened, tally.groups, tally.pruned_by_statistics) == (2, 20, 20)


def test_damaged_pages_are_read_again(lake: LakeOfRows) -> None:
    segment = lake.write_table(table())
    cached = lake.cache.get(segment.key)
    assert isinstance(cached.content, Path)
    body = bytearray(cached.content.read_bytes())
    body[4 : len(body) // 3] = b"\xff" * (len(body) // 3 - 4)
    cached.content.write_bytes(body)
    tally = RowTally()
    found = batches_of(lake, [segment], RowScan(LOGS, ordered=False), tally)
    assert sum(batch.num_rows for batch in found) == ROWS
    assert not tally.failed


def test_a_damaged_object_is_named_once(lake: LakeOfRows) -> None:
    segments = [lake.write_table(table(start)) for start in (0, ROWS)]
    bad = rotten(lake.store.get(segments[0].key), "message")
    lake.store.put(segments[0].key, bad, create_only=False)
    seen: list[RowSegment] = []
    tally = RowTally()
    found = batches_of(
        lake, segments, RowScan(LOGS, ordered=False), tally, on_error=lambda segment, error: seen.append(segment)
    )
    assert seen == [segments[0]]
    assert list(tally.failed) == [segments[0].segment_id]
    assert ROWS <= sum(batch.num_rows for batch in found) < 2 * ROWS


def test_an_error_of_the_caller_ends_the_scan(lake: LakeOfRows) -> None:
    segment = lake.write_table(table())

    def spend(held_bytes: int) -> None:
        if held_bytes > 1_000:
            raise LimitHit("cannot hold more")

    with pytest.raises(LimitHit):
        batches_of(lake, [segment], RowScan(LOGS, ordered=False), spend=spend)


def test_work_ends_when_the_reader_goes(lake: LakeOfRows, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = [lake.write_table(table(start)) for start in range(0, 3 * ROWS, ROWS)]
    reads: list[int] = []
    original = group_rows.group_batch
    monkeypatch.setattr(group_rows, "group_batch", lambda *given, **named: reads.append(1) or original(*given, **named))
    found = scan_segments(
        lake.opener, segments, RowScan(LOGS, ordered=False), lambda held_bytes: None, RowTally(), pool=POOL
    )
    next(found)
    found.close()  # type: ignore[attr-defined]
    POOL.submit(int).result()
    assert len(reads) < 15


def test_what_is_made_of_a_row_group_is_kept_for_other_times(lake: LakeOfRows) -> None:
    segment = lake.write_table(table())
    made: list[int] = []

    def make(rows: ReadableRows) -> list[int]:
        made.append(1)
        return rows.batch(("timestamp",)).column(0).cast(pa.int64()).to_pylist()

    form = KeptForm("times", lambda times: sorted(times, reverse=True), lambda times: 8 * len(times))

    def asked(start_ns: int, end_ns: int, asked_of: RowSegment = segment) -> tuple[list[list[int]], int]:
        scan = RowScan(LOGS, parse('message contains "1"'), None, start_ns, end_ns, ordered=False)
        made.clear()
        tally = RowTally()
        found = list(
            map_groups(lake.opener, [asked_of], scan, lambda _: None, tally, lambda *_: None, make, POOL, form=form)
        )
        assert tally.rows_found == sum(map(len, found))
        return sorted(found), len(made)

    everything, first = asked(0, 1 << 60)
    assert first == len(everything) > 1 and all(times == sorted(times) for times in everything)
    # Asked again, it is kept; then it is given at any time, whole, and nothing is read.
    assert asked(0, 1 << 60) == (sorted(times[::-1] for times in everything), first)
    assert asked(0, 1 << 60) == (sorted(times[::-1] for times in everything), 0)
    middle = everything[len(everything) // 2]
    found, read = asked(middle[0], middle[0] + 1)
    assert middle[::-1] in found and not read
    # Hidden rows make another condition.
    hidden = HiddenRows(uuid.uuid4(), middle[0], middle[-1] + 1, predicate_condition(parse('message contains "line"')))
    left, fresh = asked(0, 1 << 60, replace(segment, hidden=(hidden,)))
    assert fresh and left == [times for times in everything if times != middle]
