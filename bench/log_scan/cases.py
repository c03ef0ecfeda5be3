"""The questions of the benchmark: as a row scan with what is made of its batches, and as SQL for the peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench.log_scan.lines import NEEDLE, Lake

from lakerunner.model.signals.logs import LOGS
from lakerunner.model.time import NS_PER_S
from lakerunner.query.scan.rows.predicate import EVERYTHING, Column, Compare, Contains, Matches, Op, Predicate, Text
from lakerunner.query.scan.rows.request import RowScan

#: What a case gives: a number that all who answer must agree on.
Answer = Callable[[Iterable[pa.RecordBatch]], int]
MESSAGE = Column("message")
_STEP_NS = 60 * NS_PER_S
_BY_LEVEL = (
    "SELECT max(n) FROM (SELECT severity, CAST(floor(epoch(timestamp) / 60) AS BIGINT) AS m, count(*) AS n "
    "FROM {table} GROUP BY ALL)"
)
_BY_USER = "SELECT max(n) FROM (SELECT attr_user_id, count(*) AS n FROM {table} GROUP BY ALL)"
_EXPORT = "SELECT * FROM {table} WHERE {where} ORDER BY timestamp DESC, timestamp_nanos DESC"
_LAST = (
    "SELECT count(*) FROM (SELECT * FROM {table} WHERE {where} ORDER BY timestamp DESC, timestamp_nanos DESC LIMIT 100)"
)


@dataclass(frozen=True)
class Case:
    name: str
    scan: RowScan
    answer: Answer
    #: The condition in SQL, and the query, in which `{table}` and `{where}` are replaced.
    where: str
    #: The columns that an answer needs, and the text that it looks for in the message: what the floor reads.
    needs: tuple[str, ...]
    text: str = ""
    #: The share of the bytes of a full scan that a fresh process may read.
    most_bytes: float | None = None
    sql: str = "SELECT count(*) FROM {table} WHERE {where}"


def rows(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def by_level_and_minute(batches: Iterable[pa.RecordBatch]) -> int:
    """The largest count of a level in a minute."""
    counts: dict[tuple[str, int], int] = {}
    for batch in batches:
        levels = batch.column("severity")
        levels = levels if pa.types.is_dictionary(levels.type) else levels.dictionary_encode()
        steps = batch.column("timestamp").cast(pa.int64()).to_numpy() // _STEP_NS
        first = int(steps.min())
        width = int(steps.max()) - first + 1
        found = np.bincount(
            levels.indices.to_numpy() * width + (steps - first), minlength=width * len(levels.dictionary)
        )
        for number, level in enumerate(levels.dictionary.to_pylist()):
            for step in np.flatnonzero(found[number * width : (number + 1) * width]).tolist():
                key = (level, first + step)
                counts[key] = counts.get(key, 0) + int(found[number * width + step])
    return max(counts.values())


def by_field(name: str) -> Answer:
    """The largest count of a value of the field."""

    def answer(batches: Iterable[pa.RecordBatch]) -> int:
        tables = []
        for batch in batches:
            values = batch.column(name)
            values = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
            counts = np.bincount(values.indices.to_numpy(), minlength=len(values.dictionary))
            tables.append(pa.table({"value": values.dictionary, "count": counts}))
        whole = pa.concat_tables(tables).group_by("value").aggregate([("count", "sum")])
        return int(pc.max(whole.column("count_sum")).as_py())

    return answer


def cases(lake: Lake) -> list[Case]:
    def equal(name: str, value: str) -> Predicate:
        return Compare(Column(name), Op.EQUAL, Text(value))

    def unordered(predicate: Predicate, *columns: str) -> RowScan:
        return RowScan(LOGS, predicate, columns, ordered=False)

    def text(name: str, needle: str, most_bytes: float | None = None) -> Case:
        scan = unordered(Contains(MESSAGE, needle))
        return Case(name, scan, rows, f"contains(message, '{needle}')", ("message",), needle, most_bytes)

    def pattern(name: str, expression: str) -> Case:
        scan = unordered(Matches(MESSAGE, expression, anchored=False))
        return Case(name, scan, rows, f"regexp_matches(message, '{expression}')", ("message",))

    service = equal("service_name", "service-07")
    of_service = "service_name = 'service-07'"
    times = ("timestamp", "timestamp_nanos")
    return [
        Case("count by level over time", unordered(EVERYTHING, "severity"), by_level_and_minute, "true",
             (*times, "severity"), sql=_BY_LEVEL),
        Case("count by a field of 20,000 values", unordered(EVERYTHING, "attr_user_id"), by_field("attr_user_id"),
             "true", (*times, "attr_user_id"), sql=_BY_USER),
        text("an id in the line", lake.request_id, 0.02),
        text("an absent id", "0123456789abcdef", 0.005),
        text("a short number", NEEDLE),
        text("a frequent text", "charged payment"),
        pattern("pattern with a text", r"after=29\d\dms"),
        pattern("pattern in any case", "(?i)charged PAYMENT"),
        pattern("pattern without a text", r"[a-z]+-\d{4}[13579]\b"),
        Case("a trace id", unordered(equal("trace_id", lake.trace_id)), rows, f"trace_id = '{lake.trace_id}'",
             ("trace_id",)),
        Case("an id in a field", unordered(equal("attr_request_id", lake.request_id)), rows,
             f"attr_request_id = '{lake.request_id}'", ("attr_request_id",)),
        Case("lines of a service", unordered(service, "message"), rows, of_service, ("service_name", "message"),
             sql="SELECT count(message) FROM {table} WHERE {where}"),
        Case("last 100 of a service", RowScan(LOGS, service, limit=100), rows, of_service, ("service_name", *times),
             sql=_LAST),
        Case("export of a service", RowScan(LOGS, service), rows, of_service, ("service_name", "message"), sql=_EXPORT),
    ]  # fmt: skip
