"""Rows in the API's memory: the same segments are asked for the same rows once, and no answer changes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from lakerunner.index.deletions import request_deletion
from lakerunner.model.errors import Unavailable
from lakerunner.model.signals.logs import LOGS
from lakerunner.query.deletable import deletion_request
from lakerunner.query.fanout.answer import Check
from lakerunner.query.fanout.held_rows import HeldRows
from lakerunner.query.fanout.protocol import EvaluateRequest
from lakerunner.query.lake import Lake
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.language import QueryOptions, RowPlan
from lakerunner.query.languages import language
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.series.times import QueryTimes
from tests.components.postgres import PostgresServer
from tests.query.lake_of_logs import HOUR_NS, HOURS, ROWS, put_logs, write_logs
from tests.query.worker_lake import PacedWorkers, WorkerLake, worker_lake

LIMIT_BYTES = 16 << 20
MINUTE_NS = HOUR_NS // 60


@pytest.fixture(scope="module")
def lake(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerLake]:
    with worker_lake(tmp_path_factory.mktemp("lake"), postgres_server.new_database()) as made:
        yield made


@pytest.fixture
def org(lake: WorkerLake) -> uuid.UUID:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    return org_id


@dataclass(frozen=True)
class Ask:
    text: str = '{service_name=~".+"}'
    start_ns: int = 0
    end_ns: int = HOURS * HOUR_NS
    limit: int = 10
    newest_first: bool = True
    language: str = "logql"
    columns: tuple[str, ...] | None = None


class Api:
    """An API with a memory of its own, and how often it asked a worker."""

    def __init__(self, lake: WorkerLake, limit_bytes: int = LIMIT_BYTES, flight: object = None) -> None:
        self.workers = PacedWorkers(flight or lake.flight)  # type: ignore[arg-type]
        self.lake = Lake(lake.database, Catalog(lake.database), self.workers, None, HeldRows(limit_bytes))

    def ask(self, org_id: uuid.UUID, ask: Ask) -> tuple[list[dict[str, object]], LakeQuery]:
        options = QueryOptions(
            limit=ask.limit, newest_first=ask.newest_first, columns=ask.columns, signal="logs", lookback_ms=0
        )
        times = QueryTimes.of_ns(ask.start_ns, ask.end_ns, 1_000)
        plan = language(ask.language).compile(ask.text, times, options)
        assert isinstance(plan, RowPlan)
        query = self.lake.query(org_id)
        query.prepare(plan.leaves)
        return [row for batch in query.rows(plan) for row in batch.to_pylist()], query

    def is_held(self, org_id: uuid.UUID, ask: Ask) -> bool:
        """Whether the answer is given without asking a worker; it must be the same as with one."""
        before = self.workers.requests
        found, query = self.ask(org_id, ask)
        assert query.stats.segments_read == query.stats.segments_planned
        held = self.workers.requests == before
        assert query.stats.row_scan.get("segments_held", 0) == (query.stats.segments_planned if held else 0)
        self.lake._held, kept = None, self.lake._held
        assert self.ask(org_id, ask)[0] == found
        self.lake._held = kept
        return held


def lines(rows: list[dict[str, object]]) -> list[object]:
    return [row["line"] for row in rows]


def test_rows_that_are_asked_for_again_are_held(lake: WorkerLake, org: uuid.UUID) -> None:
    api = Api(lake)
    for ask in (
        Ask(),
        Ask('{service_name="s1"} |= "half 1"', newest_first=False),
        Ask('{service_name="s1"} |= "half 2"'),
    ):
        assert [api.is_held(org, ask) for _ in range(4)] == [False, False, True, True], ask
    in_rows = Ask("severity_number >= 17", language="rows", columns=("message", "attr_n"))
    assert [api.is_held(org, in_rows) for _ in range(3)] == [False, False, True]
    assert not api.is_held(org, replace(in_rows, columns=("message",)))


@pytest.mark.parametrize("newest_first", [True, False])
def test_an_answer_that_ends_at_its_limit_is_that_of_every_range_that_reaches_it(
    lake: WorkerLake, org: uuid.UUID, *, newest_first: bool
) -> None:
    api = Api(lake)
    asked = Ask(limit=5, newest_first=newest_first, start_ns=MINUTE_NS, end_ns=(HOURS - 1) * HOUR_NS + 30 * MINUTE_NS)
    if newest_first:
        # Five rows of both halves: the last one is that of minute 27, and all segments overlap the ranges.
        last_ns = (HOURS - 1) * HOUR_NS + 27 * MINUTE_NS + 1
        reaching = [replace(asked, start_ns=start_ns) for start_ns in (0, MINUTE_NS + 5, 30 * MINUTE_NS)]
        short = replace(asked, start_ns=last_ns + 1)
        later = replace(asked, end_ns=asked.end_ns + 1)
    else:
        reaching = [replace(asked, end_ns=asked.end_ns + each) for each in (-MINUTE_NS, 1, 10 * MINUTE_NS)]
        short = replace(asked, end_ns=3 * MINUTE_NS)
        later = replace(asked, start_ns=asked.start_ns + 1)
    assert [api.is_held(org, asked) for _ in range(3)] == [False, False, True]
    assert all(api.is_held(org, each) for each in reaching)
    assert not any(api.is_held(org, each) for each in (short, later, replace(asked, limit=6)))
    # What does not end at its limit is only that of its own range.
    assert [api.is_held(org, replace(asked, limit=5_000)) for _ in range(3)] == [False, False, True]
    assert not any(api.is_held(org, replace(each, limit=5_000)) for each in reaching)


def test_ranges_beyond_all_rows_are_the_same_range(lake: WorkerLake, org: uuid.UUID) -> None:
    api = Api(lake)
    ends = [HOURS * HOUR_NS + number * HOUR_NS for number in range(4)]
    wanted = [Ask('{service_name="s3"} |= "number 7"', end_ns=end_ns, limit=100) for end_ns in ends]
    assert [api.is_held(org, each) for each in wanted] == [False, False, True, True]


def test_random_questions_are_answered_as_without_a_memory(lake: WorkerLake, org: uuid.UUID) -> None:
    chosen = random.Random(20)
    api = Api(lake)
    texts = ['{service_name="s2"}', '{service_name=~".+"} |= "half 0" != "number 3"']
    held = 0
    for _ in range(400):
        start_ns, end_ns = sorted(chosen.choices(range(0, HOURS * HOUR_NS + 1, HOUR_NS // 2), k=2))
        held += api.is_held(
            org,
            Ask(chosen.choice(texts), start_ns, end_ns + 1, chosen.choice([1, 30]), chosen.random() < 0.5),
        )
    assert held > 30


def test_new_segments_are_seen_at_once(lake: WorkerLake, org: uuid.UUID) -> None:
    api = Api(lake)
    for _ in range(3):
        before, _ = api.ask(org, Ask(limit=3))
    row = {"timestamp": HOURS * HOUR_NS - 1, "service_name": "s1", "message": "it has just come"}
    lake.commit(org, [put_logs(lake, org, pa.Table.from_pylist([row], schema=LOGS.rows.schema()))])
    after, _ = api.ask(org, Ask(limit=3))
    assert lines(after) == ["it has just come", *lines(before)[:2]]


def test_deleted_rows_are_hidden_at_once(lake: WorkerLake, org: uuid.UUID) -> None:
    api = Api(lake)
    wanted = Ask('{service_name="s1"}', limit=5_000)
    for _ in range(3):
        before, _ = api.ask(org, wanted)
    assert len(before) == HOURS * 2 * ROWS / 4
    wanted_gone, may_hold = deletion_request(
        lake.database, org, "logs", '{service_name="s1"} |= "number 5"', 0, HOUR_NS, "a test"
    )
    with lake.database.transaction() as tx:
        request_deletion(tx, wanted_gone, 60.0, may_hold)
    for _ in range(3):
        after, _ = api.ask(org, wanted)
        gone = ["hour 0 half 1 number 5", "hour 0 half 0 number 5"]
        assert lines(after) == [line for line in lines(before) if line not in gone]


def test_what_shows_the_time_of_the_query_is_not_held(lake: WorkerLake, org: uuid.UUID) -> None:
    api = Api(lake)
    asked = Ask('{service_name="s1"} | line_format "{{ now | unixEpochNanos }}"', limit=1)
    shown = {lines(api.ask(org, asked)[0])[0] for _ in range(5)}
    assert len(shown) == api.workers.requests == 5


def test_an_answer_that_misses_a_segment_is_not_held(lake: WorkerLake, org: uuid.UUID) -> None:
    class Failing:
        """Workers that are away for the first requests."""

        left = 4

        def __getattr__(self, name: str) -> object:
            return getattr(lake.flight, name)

        def stream(self, request: EvaluateRequest, check: Check) -> Iterator[object]:
            self.left -= 1
            if self.left >= 0:
                raise Unavailable("cannot read rows: no query worker is available")
            return lake.flight.stream(request, check)

    api = Api(lake, flight=Failing())
    for _ in range(4):
        with pytest.raises(Unavailable):
            api.ask(org, Ask())
    assert [len(api.ask(org, Ask())[0]) for _ in range(3)] == [10] * 3
    assert api.workers.requests == 6, "asked twice since workers are back"


def test_orgs_and_large_answers_are_apart(lake: WorkerLake, org: uuid.UUID) -> None:
    api, other = Api(lake), uuid.uuid4()
    for _ in range(3):
        assert len(api.ask(org, Ask())[0]) == 10
        assert api.ask(other, Ask())[0] == []
    small = Api(lake, 64 * 4_000)
    assert [small.is_held(org, Ask(limit=1)) for _ in range(3)] == [False, False, True]
    assert not any(small.is_held(org, Ask(limit=400)) for _ in range(3))
    long_text = '{service_name=~".+"}' + ' |= "hour"' * 200
    assert not any(api.is_held(org, Ask(long_text)) for _ in range(3))
