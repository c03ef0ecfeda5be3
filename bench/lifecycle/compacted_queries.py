"""The same queries before and after compaction, hot, in one process; CPU milliseconds, and what was written for it.

Segments are as small as ingest makes them. At 1x, 2x and 4x there are so many times more of them.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog
from bench.lifecycle.compaction import later, line, write_segment
from bench.otlp import MAKERS, START_NS
from bench.served.index import postgres

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.read import read_object
from lakerunner.index.attribute_types import record_types
from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.ids import fresh_id
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS
from lakerunner.pipeline.split import merged
from lakerunner.query.lake import open_lake
from lakerunner.query.language import QueryOptions
from lakerunner.query.logql.language import LANGUAGE as LOGQL
from lakerunner.query.promql.language import LANGUAGE as PROMQL
from lakerunner.query.run import run
from lakerunner.query.series.times import QueryTimes
from tests.pipeline.compact.small_lake import compact_until_settled
from tests.pipeline.lake import Lake, settings_of

_ROWS = 2_000
_MERGED_BYTES = (
    "SELECT coalesce(sum(size_bytes), 0)::float8 FROM segment WHERE signal = %s AND org_id = %s AND level > 0"
)
_QUERIES: tuple[tuple[str, Signal, Any, str], ...] = (
    ("a text in logs", LOGS, LOGQL, 'sum(count_over_time({service_name="cart-api"} |= "answered 500" [1m]))'),
    ("logs by level", LOGS, LOGQL, 'sum by (detected_level) (count_over_time({service_name=~".+"}[1m]))'),
    ("PromQL range", METRICS, PROMQL, "sum by (job) (rate(http_server_requests_total[5m]))"),
)


def measure(quick: bool) -> Iterator[str]:
    # Standard output is for figures.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="bench-queries-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        with postgres(Path(name) / "index") as (database, _):
            for factor in (1, 2) if quick else (1, 2, 4):
                yield from _at(Path(name) / str(factor), database.url, factor, 20 if quick else 60)


def _at(folder: Path, url: str, factor: int, segments: int) -> Iterator[str]:
    lake = Lake(settings_of(url, folder))
    org = fresh_id()
    try:
        for signal in (LOGS, METRICS):
            _fill(lake, signal, segments * factor, org)
        before = {name: _cpu_ms(lake, query, org) for name, _, *query in _QUERIES}
        written = {signal: sum(each.size_bytes for each in lake.segments(signal, org)) for signal in (LOGS, METRICS)}
        for signal in (LOGS, METRICS):
            compact_until_settled(lake, signal, org)
        for name, signal, *query in _QUERIES:
            after = len(lake.segments(signal, org))
            case = f"{name}, {factor}x, {segments * factor} segments compacted to {after}"
            yield line(case, _cpu_ms(lake, query, org), "ms CPU", "lower", "before compaction", before[name])
        for signal, fresh in written.items():
            merged_bytes = lake.value(_MERGED_BYTES, [signal.name, org])
            case = f"write amplification of {signal}, {factor}x"
            yield line(case, (merged_bytes + fresh) / 1e6, "MB written", "lower", "MB ingested", fresh / 1e6)
    finally:
        lake.close()


def _fill(lake: Lake, signal: Signal, segments: int, org: Any) -> None:
    decoded = [read_object(MAKERS[signal.name](number, _ROWS), signal).tables for number in range(4)]
    types = AttributeTypes(AttributeTypes().added(merged(signal, decoded)[""].schema, signal.rows.schema().names))
    item = WorkItem(fresh_id(), "ingest", org, signal.name)
    made = [
        write_segment(lake.store, signal, [later(signal, decoded[n % 4], n * 10)], types, org) for n in range(segments)
    ]
    with lake.database.transaction() as tx:
        create_item(tx, item)
        record_types(tx, org, signal.name, types.known)
    commit_item(lake.database, ItemResult(item.item_id, made=made))


def _cpu_ms(lake: Lake, query: list[Any], org: Any) -> float:
    language, text = query
    start_ms = START_NS // 1_000_000
    plan = language.compile(text, QueryTimes(start_ms, start_ms + 1_800_000, 60_000), QueryOptions())
    opened = open_lake(lake.settings, lake.database)
    spent = []
    try:
        for _ in range(5):
            began = time.process_time()
            source = opened.query(org)
            source.prepare(plan.leaves)
            run(plan, source, lambda: None)
            spent.append((time.process_time() - began) * 1e3)
    finally:
        opened.close()
    # The first one fills the caches.
    return statistics.median(spent[1:])
