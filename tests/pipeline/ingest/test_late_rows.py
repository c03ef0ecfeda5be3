"""Rows with scattered times: few segments and partitions, and every row is still found by its time."""

from __future__ import annotations

import random
import time

import orjson
import pyarrow as pa

from lakerunner.model.signals import LOGS, METRICS, signal_named
from lakerunner.model.time import MAX_TIME_NS, NS_PER_HOUR, NS_PER_MS, NS_PER_S
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.ingest.task import run_task
from lakerunner.pipeline.items import load_items, make_item
from lakerunner.pipeline.split import MAX_FAR_PARTS, NEAR_FUTURE_HOURS, NEAR_PAST_HOURS
from lakerunner.pipeline.worker import run_batch
from lakerunner.query.lake import open_lake
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.times import QueryTimes
from tests.pipeline.lake import ORG, Lake

ROWS = 1_000


def ingest(lake: Lake, signal: str, rows: list[dict[str, object]]) -> None:
    raw = lake.put(signal_named(signal), b"\n".join(map(orjson.dumps, rows)), f"{signal}_1.json")
    made = make_item(lake.database, INGEST, [raw])
    assert made is not None
    with lake.database.transaction() as tx:
        items, _ = load_items(tx, INGEST, [made], lake.settings.pipeline)
    runner = IngestRunner(lake.settings, lake.database, lambda tasks: [run_task(task) for task in tasks])
    assert run_batch(INGEST, lake.database, runner, list(items.values()), {made: 1}) == {made: None}


def scattered_ns() -> list[int]:
    """All of time, the last year more densely, and the last hours."""
    now_ns = time.time_ns()
    rng = random.Random(1)
    everywhere = [rng.randrange(NS_PER_S, MAX_TIME_NS) for _ in range(ROWS // 2)]
    past_year = [now_ns - rng.randrange(365 * 24 * NS_PER_HOUR) for _ in range(ROWS // 4)]
    present = [now_ns - rng.randrange(3 * NS_PER_HOUR) for _ in range(ROWS // 4)]
    # Whole milliseconds above 1e17, so that every time is read as nanoseconds.
    return [max(at, 10**17) // NS_PER_MS * NS_PER_MS for at in everywhere + past_year + present]


def test_scattered_rows_are_found_by_their_times(lake: Lake) -> None:
    times = scattered_ns()
    ingest(lake, "logs", [{"time": at, "message": f"m{number}"} for number, at in enumerate(times)])
    ingest(lake, "metrics", [{"time": at, "name": "m", "value": n, "n": str(n)} for n, at in enumerate(times)])

    most = NEAR_PAST_HOURS + NEAR_FUTURE_HOURS + MAX_FAR_PARTS
    for signal in (LOGS, METRICS):
        segments = lake.segments(signal)
        assert sum(segment.row_count for segment in segments) == ROWS
        assert len(segments) <= most
    partitions = lake.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'segment'::regclass")
    assert partitions <= 3, "the undated one, and the months of the present"

    opened = open_lake(lake.settings, lake.database)
    try:
        for number in range(0, ROWS, 50):
            at_ns = times[number]
            second = QueryTimes(at_ns // NS_PER_MS, at_ns // NS_PER_MS + 1, 0)
            plan = language("rows").compile(f'message = "m{number}"', second, QueryOptions(signal="logs", limit=10))
            found = pa.Table.from_batches(list(opened.query(ORG).rows(plan)))
            assert found.column("timestamp").cast(pa.int64()).to_pylist() == [at_ns]
            series = opened.query(ORG).select(
                [Matcher("n", MatchKind.EQUAL, str(number))], at_ns // NS_PER_MS, at_ns // NS_PER_MS
            )
            assert len(series.labels) == 1
    finally:
        opened.close()
