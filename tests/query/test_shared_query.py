"""One query's source is used by several threads, since groups are read ahead: nothing may be lost or mixed up."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from lakerunner.index.lookup import Want
from lakerunner.model.segment import Pruning, Segment
from lakerunner.model.time import NS_PER_MS, TimeRange
from lakerunner.query.fanout.answer import Check, Cost, SegmentAnswer
from lakerunner.query.fanout.protocol import ScanRequest
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.plan.catalog import Looked
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.planner import Planner
from lakerunner.query.stats import QueryStats

ORG = uuid.uuid4()
WINDOWS, WIDTH_MS = 40, 1_000


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Threads change as often as Python can: what is not guarded shows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def _segment(number: int) -> Segment:
    start_ns = number * WIDTH_MS * NS_PER_MS
    return Segment(
        segment_id=uuid.uuid4(),
        org_id=ORG,
        collector="c",
        signal="metrics",
        time_range=TimeRange(start_ns, start_ns + WIDTH_MS * NS_PER_MS),
        row_count=1,
        size_bytes=10,
        pruning=Pruning({}, {}),
    )


SEGMENTS = [_segment(number) for number in range(WINDOWS)]


class _Catalog:
    """An index that takes its time."""

    def lookup(self, org_id: uuid.UUID, wants: Sequence[Want]) -> Looked:
        time.sleep(0.001)
        return Looked([one for one in SEGMENTS if any(one.time_range.overlaps(want.time_range) for want in wants)])


def _leaf(number: int) -> Leaf:
    return Leaf.of_samples((), number * WIDTH_MS, (number + 1) * WIDTH_MS - 1)


def test_a_plan_never_goes_by_what_another_thread_looked_up() -> None:
    planner = Planner(_Catalog(), ORG)  # type: ignore[arg-type]

    def planned(number: int) -> bool:
        # The same leaf several times in a row: one thread looks it up while the next ask for it.
        window = number // 8 % WINDOWS
        return [one.segment_id for one in planner.plan(_leaf(window)).segments] == [SEGMENTS[window].segment_id]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(planned, range(400)))


def test_no_count_is_lost() -> None:
    stats = QueryStats()
    answer = SegmentAnswer(uuid.uuid4(), cost=Cost(rows=1, read_bytes=2, cache_hits=3, fetch_s=1.0, scan_s=1.0))
    failed = SegmentAnswer(uuid.uuid4(), error="gone")

    def count(_: int) -> None:
        for _ in range(2_000):
            stats.answered(answer)
            stats.spent("merge", 1.0)
            stats.answered(replace(failed, segment_id=uuid.uuid4()))
            stats.to_json(), stats.warnings()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert (stats.segments_read, stats.rows, stats.read_bytes, stats.cache_hits) == (8_000, 8_000, 16_000, 24_000)
    assert len(stats.segments_failed) == 8_000
    assert (stats.seconds["fetch"], stats.seconds["merge"]) == (8_000.0, 8_000.0)


class _Workers:
    count = 0

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        for one in request.segments:
            yield SegmentAnswer(one.segment_id, cost=Cost(rows=1))

    def close(self) -> None:
        pass


def test_a_source_shared_by_threads_keeps_its_account() -> None:
    source = LakeQuery(ORG, Planner(_Catalog(), ORG), _Workers())  # type: ignore[arg-type]

    def select(number: int) -> None:
        leaf = _leaf(number % WINDOWS)
        source.select((), leaf.start_ms, leaf.end_ms)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(select, range(400)))
    assert (source.stats.segments_planned, source.stats.segments_read, source.stats.rows) == (400, 400, 400)
