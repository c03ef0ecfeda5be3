"""LogQL over a real lake: log queries and metric queries, in this process and pushed down to workers."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.query import lake_query
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.language import Plan, QueryOptions, RowPlan, StepPlan
from lakerunner.query.languages import language
from lakerunner.query.limits import QueryLimits, Size
from lakerunner.query.logql import ast, log_rows, pipeline
from lakerunner.query.logql.eval.series_times import SeriesTimes
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.printer import print_expr
from lakerunner.query.logql.pushdown import Pushed
from lakerunner.query.plan.planner import Planner
from lakerunner.query.run import run
from lakerunner.query.scan.rows.conditions.predicate import EVERYTHING
from lakerunner.query.series.results import MatrixResult, ScalarResult, VectorResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.worker.server import WorkerServer
from tests.query.lake_of_series import LakeOfSeries
from tests.query.logql.lake_of_entries import MINUTE_NS, MINUTES, START_NS, write_entries

TOKEN = "a shared secret"
END_NS = START_NS + MINUTES * MINUTE_NS
Entry = tuple[int, str, dict[str, str], dict[str, str], dict[str, str]]

#: Matchers and stages that random queries are made of.
MATCHERS = (
    'service_name="web"',
    'service_name=~"web|cart"',
    'service_name!="jobs"',
    'service_name="unknown_service"',
    'service_name=~"w.*|unknown.*"',
    'k8s_pod_name="cart-1"',
    'k8s_pod_name=~".+-0"',
    'detected_level="error"',
    'detected_level!="info"',
    'detected_level=~"unknown|info"',
    'status="500"',
    'status=~"4..|500"',
    'status!~"2.."',
    'Route_Name="/r1"',
    'route_name="/r1"',
    'host_name="own"',
    'host_name!=""',
    'user_id=~"u[12]"',
    'user_id=""',
    'user_id!~""',
    'user_id=~"|u1"',
    'library="x"',
    'scope_name="lib"',
    'nothing!="x"',
    'severity_number="9"',
)
STAGES = (
    '|= "timeout"',
    '|= "id-4711" or "refused"',
    '!= "ok"',
    '|~ "h[12]"',
    '|~ "(?i)TIME"',
    '!~ "ok|refused"',
    '|~ "^$"',
    '|> "GET <_> 500"',
    "| json",
    "| logfmt",
    "| json | logfmt",
    '| regexp "(?P<verb>[A-Z]+) (?P<path>\\\\S+)"',
    '| pattern "<verb> <path> <code>"',
    '| msg="naïve"',
    '| msg="timeout"',
    '| msg=~"ok|id-4711"',
    '| verb="GET"',
    '| status="404"',
    '| status_extracted="404"',
    '| host="h2"',
    '| host="h2" or user_id="u1"',
    '| host=~"h.*"',
    '| Route_Name=~"/r1|/r2"',
    '| user_id!~"|u1"',
    '| status=~"404|500"',
    '| host="h2" | detected_level="error"',
    "| status >= 404",
    "| took > 1s",
    '| msg!=""',
    '| __error__=""',
    "| drop status",
    "| keep msg, host",
    "| drop detected_level",
    '| detected_level=""',
    "| decolorize",
)
METRICS = (
    "count_over_time({}[5m])",
    "sum by (service_name) (count_over_time({}[1m]))",
    "sum by (status, detected_level) (rate({}[2m]))",
    "sum(bytes_over_time({}[3m] offset 1m))",
    "sum without (k8s_pod_name) (count_over_time({}[1m]))",
    "absent_over_time({}[1m])",
    "topk(2, sum by (Route_Name) (count_over_time({}[10m])))",
    "sum(count_over_time({}[1m])) / sum(count_over_time({}[7m]))",
)


@pytest.fixture(scope="module")
def org(lake: LakeOfSeries) -> uuid.UUID:
    return write_entries(lake)


@pytest.fixture(scope="module")
def flight(lake: LakeOfSeries) -> Iterator[FlightWorkers]:
    workers = [local_workers(lake.settings, f"logql-{number}") for number in range(2)]
    servers = [WorkerServer("grpc://127.0.0.1:0", each, TOKEN, 8, 1 << 30) for each in workers]
    found = FlightWorkers(lambda: [f"127.0.0.1:{server.port}" for server in servers], TOKEN)
    yield found
    found.close()
    for server in servers:
        server.shutdown()
    for each in workers:
        each.close()


@pytest.fixture
def here(lake: LakeOfSeries, org: uuid.UUID) -> LakeQuery:
    return LakeQuery(org, Planner(lake.lake._catalog, org), lake.lake._workers)


@pytest.fixture
def pushed(lake: LakeOfSeries, org: uuid.UUID, flight: FlightWorkers) -> LakeQuery:
    return LakeQuery(org, Planner(lake.lake._catalog, org), flight)


def compiled(text: str, start_ns: int = START_NS, end_ns: int = END_NS, step_ms: int = 0, **options: Any) -> Plan:
    return language("logql").compile(text, QueryTimes.of_ns(start_ns, end_ns, step_ms), QueryOptions(**options))


def entries_of(query: LakeQuery, text: str, *times: int, **options: Any) -> list[Entry]:
    plan = compiled(text, *times, **options)
    assert isinstance(plan, RowPlan)
    found: list[Entry] = []
    for batch in query.rows(plan):
        assert batch.schema.names == ["timestamp", "line", "stream", "metadata", "parsed"]
        times_ns, lines, *labels = (batch.column(name) for name in batch.schema.names)
        found += zip(
            times_ns.cast(pa.int64()).to_pylist(),
            lines.to_pylist(),
            *([json.loads(text) for text in column.to_pylist()] for column in labels),
            strict=True,
        )
    return found


def without_order(entries: Sequence[Entry]) -> list[str]:
    return sorted(map(repr, entries))


def nothing_pushed(selector: ast.LogSelector) -> Pushed:
    return Pushed(EVERYTHING, selector.matchers, selector.stages)


def random_selector(rng: random.Random) -> str:
    matchers = ", ".join(['service_name=~".+"', *rng.sample(MATCHERS, rng.randrange(0, 3))])
    return f"{{{matchers}}} {' '.join(rng.choices(STAGES, k=rng.randrange(0, 4)))}"


# -- log queries -------------------------------------------------------------------------------------------------------


def test_entries_have_labels_by_category(here: LakeQuery) -> None:
    text = '{service_name="web", k8s_pod_name="web-1"} | json | __error__="" | host="h2" | status_extracted="500"'
    found = entries_of(here, text, limit=5)
    assert found
    for _, line, stream, metadata, parsed in found:
        assert stream == {"service_name": "web", "k8s_pod_name": "web-1", "cloud_region": "eu"}
        assert metadata["status"] == "500" and metadata["host_name"] == "h1" and "detected_level" in metadata
        assert parsed["host"] == json.loads(line)["host"] == "h2"


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_pushing_down_changes_no_answer(
    here: LakeQuery, pushed: LakeQuery, monkeypatch: pytest.MonkeyPatch, seed: int, newest_first: bool
) -> None:
    rng = random.Random(seed)
    text = random_selector(rng)
    start_ns, end_ns = sorted(START_NS + rng.randrange(MINUTES) * MINUTE_NS for _ in range(2))
    found = entries_of(here, text, start_ns, end_ns, newest_first=newest_first)
    times = [entry[0] for entry in found]
    assert times == sorted(times, reverse=newest_first)
    assert all(start_ns <= time < max(end_ns, start_ns + 1) for time in times)
    assert without_order(entries_of(pushed, text, start_ns, end_ns, newest_first=newest_first)) == without_order(found)
    limit = rng.choice((1, 3, 20))
    monkeypatch.setattr(log_rows, "_FEW_ROWS", rng.choice((0, 1_000)))
    for query in (here, pushed):
        some = entries_of(query, text, start_ns, end_ns, newest_first=newest_first, limit=limit)
        assert [entry[0] for entry in some] == times[:limit]
        assert set(map(repr, some)) <= set(map(repr, found))
    monkeypatch.setattr(pipeline, "push_down", nothing_pushed)
    plain = entries_of(here, text, start_ns, end_ns, newest_first=newest_first)
    assert without_order(plain) == without_order(found)


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        '{service_name="web"}',
        '{service_name=~".+"}',
        '{service_name=~".+", user_id="u1"}',
        '{k8s_pod_name="jobs-1"} | status!="500"',
        '{service_name=~".+"} | detected_level="error" | Route_Name="/r1"',
    ],
)
def test_entries_that_are_kept_for_the_next_query_are_the_same(
    lake: LakeOfSeries, org: uuid.UUID, text: str, newest_first: bool
) -> None:
    """Other limits and times find what earlier ones kept: the entries of a row group that come first, or are few."""
    workers = local_workers(lake.settings, "logql-kept")
    query = LakeQuery(org, Planner(lake.lake._catalog, org), workers)
    everything = entries_of(query, text, newest_first=newest_first)
    assert everything
    for limit, minutes in ((100, MINUTES), (100, MINUTES), (100, MINUTES), (7, MINUTES), (400, MINUTES), (50, 12)):
        end_ns = START_NS + minutes * MINUTE_NS
        wanted = [entry for entry in everything if entry[0] < end_ns]
        some = entries_of(query, text, START_NS, end_ns, limit=limit, newest_first=newest_first)
        assert [entry[0] for entry in some] == [entry[0] for entry in wanted[:limit]]
        # Of entries with the time of the last one, any may be the last.
        last_ns = some[-1][0]
        assert without_order([e for e in some if e[0] != last_ns]) == without_order(
            [e for e in wanted[:limit] if e[0] != last_ns]
        )
        assert set(map(repr, some)) <= set(map(repr, wanted))
    workers.close()


def test_an_instant_and_a_half_open_range(here: LakeQuery) -> None:
    everything = entries_of(here, '{service_name=~".+"}', newest_first=False)
    time_ns = everything[len(everything) // 2][0]
    of_instant = [entry for entry in everything if entry[0] == time_ns]
    assert without_order(entries_of(here, '{service_name=~".+"}', time_ns, time_ns)) == without_order(of_instant)
    before = entries_of(here, '{service_name=~".+"}', START_NS, time_ns)
    assert len(before) == sum(entry[0] < time_ns for entry in everything)


def test_a_limit_stops_early(lake: LakeOfSeries, org: uuid.UUID) -> None:
    """Not every row is parsed to find two entries."""
    rows = []
    for limit in (2, None):
        workers = local_workers(lake.settings, f"logql-cold-{limit}")
        query = LakeQuery(org, Planner(lake.lake._catalog, org), workers)
        entries_of(query, '{service_name="web"} | json | host="h2"', limit=limit)
        rows.append(query.stats.rows)
        workers.close()
    assert rows[0] < rows[1] / 5


def test_services_that_cannot_match_are_pruned_by_the_index(here: LakeQuery) -> None:
    assert not entries_of(here, '{service_name="nobody"}', limit=10)
    assert here.stats.segments_pruned["by_value"] > 0 and not here.stats.segments_read


# -- metric queries ----------------------------------------------------------------------------------------------------


def matrix_of(
    query: LakeQuery, text: str, step_ms: int = 60_000, times: tuple[int, int] = (START_NS + 60 * 10**9, END_NS)
) -> dict[str, list[float]]:
    plan = compiled(text, *times, step_ms)
    assert isinstance(plan, StepPlan)
    found = run(plan, query, lambda: None).value
    assert isinstance(found, MatrixResult)
    return {
        str(series.labels): [*series.timestamps_ms.tolist(), *np.nan_to_num(series.values, nan=-1.0).tolist()]
        for series in found
    }


@pytest.mark.parametrize("seed", range(12))
def test_metric_queries_are_the_same_everywhere(
    here: LakeQuery, pushed: LakeQuery, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    selector = f'{random_selector(rng)} | __error__=""'
    text = rng.choice(METRICS).replace("{}", selector)
    found = matrix_of(here, text)
    assert matrix_of(pushed, text) == found
    assert sum(pushed.stats.pushed.values()) == MINUTES
    monkeypatch.setattr(pipeline, "push_down", nothing_pushed)
    pipeline._kept_pipeline.cache_clear()
    try:
        assert matrix_of(here, text) == found
    finally:
        pipeline._kept_pipeline.cache_clear()


@pytest.mark.parametrize(
    "text",
    [
        "sum by (detected_level) (count_over_time({}[1m]))",
        "sum by (service_name, status) (rate({}[20s] offset 90s))",
        "sum(count_over_time({}[7m]))",
        "absent_over_time({}[1m])",
    ],
)
@pytest.mark.parametrize(
    "selector", ['{service_name=~".+"}', '{service_name="web"} | status >= 404', '{service_name=~"cart|jobs"} |= "ok"']
)
def test_counts_that_are_kept_for_the_next_query_are_the_same(
    lake: LakeOfSeries, org: uuid.UUID, text: str, selector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of series are kept by the second query; later ones count them, at the same times and at others."""
    made: list[SeriesTimes | None] = []
    of = SeriesTimes.of
    monkeypatch.setattr(SeriesTimes, "of", lambda *given: (made.append(of(*given)), made[-1])[1])
    workers, fresh = (local_workers(lake.settings, f"logql-counted-{number}") for number in range(2))
    kept: list[int] = []
    whole = -5, MINUTES + 10
    for start, minutes in (whole, whole, whole, (3, 11), (5, 2), (0, MINUTES)):
        times = START_NS + start * MINUTE_NS + 17, START_NS + (start + minutes) * MINUTE_NS + 17
        query = LakeQuery(org, Planner(lake.lake._catalog, org), workers, size=Size.SMALL)
        first = LakeQuery(org, Planner(lake.lake._catalog, org), fresh)
        found = matrix_of(query, text.replace("{}", selector), times=times)
        kept.append(len(made))
        fresh.row_opener.forget()
        assert found == matrix_of(first, text.replace("{}", selector), times=times)
        assert len(made) == kept[-1]  # Nothing is kept of what is read once.
    assert kept[0] == 0 < kept[1] == kept[2] and None not in made
    for each in (workers, fresh):
        each.close()


def test_counts_are_those_of_the_log_query(here: LakeQuery) -> None:
    selector = '{service_name="web"} | json | __error__=""'
    entries = entries_of(here, selector, START_NS + 1, START_NS + 10 * MINUTE_NS + 1)
    plan = compiled(f"sum(count_over_time({selector}[10m]))", START_NS + 10 * MINUTE_NS, START_NS + 10 * MINUTE_NS)
    found = run(plan, here, lambda: None).value
    assert isinstance(found, VectorResult)
    assert found.values.tolist() == [len(entries)]


def test_a_scalar_reads_nothing(here: LakeQuery) -> None:
    plan = compiled("2 ^ 3 ^ 2", START_NS, START_NS)
    assert not plan.leaves
    found = run(plan, here, lambda: None).value
    assert isinstance(found, ScalarResult) and found.value == 512


def test_no_segments_still_have_a_value(here: LakeQuery) -> None:
    plan = compiled('absent_over_time({service_name="x"}[1m]) or vector(3)', 10**18, 10**18)
    found = run(plan, here, lambda: None).value
    assert isinstance(found, VectorResult)
    assert sorted(str(labels) for labels in found.labels) == ['{service_name="x"}', "{}"]


def test_lines_that_a_parser_cannot_read_are_refused_everywhere(here: LakeQuery, pushed: LakeQuery) -> None:
    for query in (here, pushed):
        with pytest.raises(BadInput, match="pipeline error: 'JSONParserErr'"):
            matrix_of(query, 'sum by (msg) (count_over_time({service_name="web"} | json [1m]))')


@pytest.mark.parametrize("text", METRICS)
def test_workers_count_their_own_rows(
    here: LakeQuery, pushed: LakeQuery, flight: FlightWorkers, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(lake_query, "_SHARED_ROWS", 1)
    monkeypatch.setattr(flight, "shares", lambda org_id, segments: [list(segments[::2]), list(segments[1::2])])
    query = text.replace("{}", '{service_name=~"web|cart"} |= "o"')
    assert matrix_of(pushed, query) == matrix_of(here, query)
    is_split = text.startswith(("sum by", "sum(", "topk"))
    # Each count is asked of both, and each share counts as all steps.
    assert sum(pushed.stats.pushed.values()) == MINUTES * (1 if not is_split else 2 * text.count("count_over") or 2)
    if is_split:
        with pytest.raises(BadInput, match="pipeline error: 'JSONParserErr'"):
            matrix_of(pushed, 'sum by (msg) (count_over_time({service_name="web"} | json [1m]))')


def test_limits_hold_on_workers(lake: LakeOfSeries, org: uuid.UUID, flight: FlightWorkers) -> None:
    query = LakeQuery(org, Planner(lake.lake._catalog, org), flight, QueryLimits(max_samples=10))
    plan = compiled('count_over_time({service_name="web"}[1m])', START_NS, END_NS, 60_000, max_samples=10)
    with pytest.raises(LimitHit):
        run(plan, query, lambda: None)


# -- the language ------------------------------------------------------------------------------------------------------


def test_text_that_is_no_query_is_refused_with_its_place() -> None:
    with pytest.raises(ParseError):
        compiled('{service_name="a"} | jsn')


def test_a_payload_has_the_whole_tree() -> None:
    from lakerunner.query.logql.language import _CODEC

    for stage in STAGES:
        expr = parse(f'{{service_name="a"}} {stage}')
        assert _CODEC.decode(_CODEC.encode(expr)) == expr
    for metric in (*METRICS, "sum_over_time({} | unwrap bytes(c) | d < 5KB [1m]) + 1 > bool vector(2)"):
        expr = parse(metric.replace("{}", '{a="b"} | json'))
        assert _CODEC.decode(_CODEC.encode(expr)) == expr
        assert parse(print_expr(expr)) == expr


def test_the_end_may_not_be_before_the_start() -> None:
    with pytest.raises(BadInput, match="end is before the start"):
        compiled('{service_name="a"}', START_NS, START_NS - 1)
