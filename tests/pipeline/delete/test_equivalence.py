"""After a deletion, and already while it waits, answers equal those over data that never had the rows."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.model.deletion import DeletionState
from lakerunner.model.labels import LabelSet
from lakerunner.model.signals.logs import LOGS
from lakerunner.query.fanout.protocol import Kind
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.promql.deletable import series_matchers
from lakerunner.query.run import run
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.times import QueryTimes
from tests.pipeline.delete import deleting
from tests.query.lake_of_logs import put_logs
from tests.query.lake_of_series import LakeOfSeries, lake_of_series

MS = 1_000_000
SELECTORS = ['{job="a"}', 'up{pod!="1"}', '{__name__=~"up|down", job!="a"}', '{pod=~"[01]"}', '{__name__="down"}']
LOG_SELECTORS = [
    '{service_name="a"}', '{service_name=~"a|b"} |= "two"', '{pod="p1"} != "one"', '{service_name=~".+", pod=""}',
    '{level!="x", service_name=~".+"} |~ "t[wh]"',
]  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path, database_url: str) -> Iterator[LakeOfSeries]:
    with lake_of_series(tmp_path, database_url) as made:
        yield made


samples = st.lists(
    st.tuples(
        st.sampled_from(["up", "down"]),
        st.sampled_from("ab"),
        st.sampled_from("012"),
        st.integers(0, 120),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda each: each[:4],
)


def source_of(rows: list[tuple[str, str, str, int, int]]) -> MemorySource:
    by_series: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for name, job, pod, minute, value in rows:
        by_series.setdefault((name, job, pod), []).append((minute * 60_000, value))
    made = MemorySource()
    for (name, job, pod), points in by_series.items():
        points.sort()
        labels = LabelSet.of({"__name__": name, "job": job, "pod": pod})
        made.add(labels, [time for time, _ in points], [float(value) for _, value in points])
    return made


def selected(lake: LakeOfSeries, org_id: uuid.UUID) -> list[tuple[object, ...]]:
    query = lake.lake.query(org_id)
    batch = query.select(series_matchers('{__name__=~".+"}'), 0, 10**9)
    found = []
    for number, labels in enumerate(batch.labels):
        begin, end = batch.offsets[number], batch.offsets[number + 1]
        found.append((str(labels), batch.timestamps_ms[begin:end].tolist(), batch.values[begin:end].tolist()))
    leaf = Leaf.of_samples(series_matchers('{__name__=~".+"}'), 0, 10**9)
    named = {text for answer in query.scan(leaf, Kind.LABELS, "pod") for text in answer.table.column(0).to_pylist()}
    return [*sorted(found), tuple(sorted(named))]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=samples, selector=st.sampled_from(SELECTORS), start=st.integers(-5, 120), minutes=st.integers(1, 130))
def test_series(
    lake: LakeOfSeries, rows: list[tuple[str, str, str, int, int]], selector: str, start: int, minutes: int
) -> None:
    matchers = series_matchers(selector)

    def stays(row: tuple[str, str, str, int, int]) -> bool:
        labels = {"__name__": row[0], "job": row[1], "pod": row[2]}
        return not (start <= row[3] < start + minutes and all(m.matches(labels.get(m.name, "")) for m in matchers))

    left = [row for row in rows if stays(row)]
    org_id = lake.write(source_of(rows))
    expected = selected(lake, lake.write(source_of(left))) if left else [()]
    deletion_id = deleting.request(
        lake.database, org_id, "metrics", selector, start * 60_000 * MS, (start + minutes) * 60_000 * MS
    )
    assert selected(lake, org_id) == expected, "hidden"
    deleting.work_off(lake.settings, lake.database)
    assert selected(lake, org_id) == expected, "rewritten"
    done = deleting.found(lake.database, org_id, deletion_id)
    assert done.state is DeletionState.DONE
    # The lake of this test stores samples at the edge of two segments twice.
    assert done.rows_deleted >= len(rows) - len(left)


entries = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", ""]), st.sampled_from(["p1", "p2", None]), st.integers(0, 100),
        st.sampled_from(["one", "two", "three two", "", None]),
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


def logs_of(rows: list[tuple[str, str | None, int, str | None]]) -> pa.Table:
    schema = LOGS.rows.schema().append(pa.field("attr_pod", pa.string()))
    documents = [
        {"timestamp": minute * 60 * 10**9 + 1, "service_name": service, "message": line, "attr_pod": pod}
        for service, pod, minute, line in rows
    ]
    return pa.Table.from_pylist(documents, schema=schema)


def log_answers(lake: LakeOfSeries, org_id: uuid.UUID) -> list[object]:
    logql, rows = language("logql"), language("rows")
    times = QueryTimes(0, 7_200_000, 0)
    source = lake.lake.query(org_id)
    plan = rows.compile("", times, QueryOptions(signal="logs"))
    found = list(source.rows(plan))  # type: ignore[arg-type]
    table = pa.Table.from_batches(found).select(["timestamp", "service_name", "message"]).to_pylist() if found else []
    at = QueryTimes(7_200_000, 7_200_000, 0)
    count = logql.compile('sum(count_over_time({service_name=~".+"} | pod=~".*" [3h]))', at, QueryOptions())
    counted = run(count, lake.lake.query(org_id), lambda: None)
    value = counted.value
    return [sorted(map(str, table)), list(map(str, value.labels)), value.values.tolist()]  # type: ignore[union-attr]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=entries, selector=st.sampled_from(LOG_SELECTORS), start=st.integers(0, 100), minutes=st.integers(1, 130))
def test_logs(
    lake: LakeOfSeries, rows: list[tuple[str, str | None, int, str | None]], selector: str, start: int, minutes: int
) -> None:
    def matches(service: str, pod: str | None, line: str) -> bool:
        name = service or "unknown_service"
        match selector:
            case '{service_name="a"}':
                return name == "a"
            case '{service_name=~"a|b"} |= "two"':
                return name in "ab" and "two" in line
            case '{pod="p1"} != "one"':
                return pod == "p1" and "one" not in line
            case '{service_name=~".+", pod=""}':
                return pod is None
            case _:
                return "tw" in line or "th" in line

    def stays(row: tuple[str, str | None, int, str | None]) -> bool:
        return not (start <= row[2] < start + minutes and matches(row[0], row[1], row[3] or ""))

    left = [row for row in rows if stays(row)]
    org_id, other = uuid.uuid4(), uuid.uuid4()
    lake.commit(org_id, [put_logs(lake, org_id, logs_of(rows))])
    if left:
        lake.commit(other, [put_logs(lake, other, logs_of(left))])
    expected = log_answers(lake, other)
    deletion_id = deleting.request(
        lake.database, org_id, "logs", selector, start * 60 * 10**9, (start + minutes) * 60 * 10**9
    )
    assert log_answers(lake, org_id) == expected, "hidden"
    deleting.work_off(lake.settings, lake.database)
    assert log_answers(lake, org_id) == expected, "rewritten"
    assert deleting.found(lake.database, org_id, deletion_id).rows_deleted == len(rows) - len(left)
