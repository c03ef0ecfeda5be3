"""The steps of "Adding a language" in docs/architecture.md, followed with a toy language: `count{…}`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.query import languages
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.language import StepPlan
from lakerunner.query.plan.planner import Planner
from lakerunner.query.run import run
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.vectors.context import EngineOptions
from lakerunner.query.worker.server import WorkerServer
from tests.query.lake_of_series import LakeOfSeries

HOUR_MS = 3_600_000
TIMES = QueryTimes(HOUR_MS, 3 * HOUR_MS, 60_000)
OPTIONS = EngineOptions(lookback_ms=300_000)
TOKEN = "a shared secret"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The one line outside the language's folder."""
    monkeypatch.setitem(languages.MODULES, "count", "tests.query.toy_count.language")
    yield
    languages.language.cache_clear()


def _plan(text: str) -> StepPlan:
    plan = languages.language("count").compile(text, TIMES, OPTIONS)
    assert isinstance(plan, StepPlan)
    return plan


def test_text_that_is_no_query_is_refused_with_its_place() -> None:
    with pytest.raises(ParseError) as caught:
        _plan('count{job="api" code="200"}')
    assert caught.value.rendered().splitlines()[-1].index("^") == 2 + len('count{job="api" ')


def test_printed_text_has_the_same_plan() -> None:
    plan = _plan('count{ job = "a\\"b" }')
    assert plan.canonical == 'count{job="a\\"b"}'
    assert _plan(plan.canonical).leaves == plan.leaves


def test_over_a_lake_in_this_process_and_pushed_down(lake: LakeOfSeries) -> None:
    loaded = MemorySource()
    for number in range(4):
        labels = LabelSet.of({"__name__": "m", "job": "api" if number % 2 else "web", "n": str(number)})
        loaded.add(labels, np.arange(240) * 60_000 + number, np.arange(240.0))
    org_id = lake.write(loaded)
    here = LakeQuery(org_id, Planner(lake.lake._catalog, org_id), lake.lake._workers)
    expected = run(_plan('count{job="api"}'), here, lambda: None)
    assert isinstance(expected.value, MatrixResult)
    assert expected.value.series[0].values.tolist() == [10.0] * TIMES.count
    workers = local_workers(lake.settings, "toy-count")
    server = WorkerServer("grpc://127.0.0.1:0", workers, TOKEN, 4, 1 << 30)
    flight = FlightWorkers(lambda: [f"127.0.0.1:{server.port}"], TOKEN)
    try:
        pushed = LakeQuery(org_id, Planner(lake.lake._catalog, org_id), flight)
        found = run(_plan('count{job="api"}'), pushed, lambda: None)
    finally:
        flight.close()
        server.shutdown()
        workers.close()
    assert sum(pushed.stats.pushed.values()) == TIMES.count
    assert isinstance(found.value, MatrixResult)
    assert found.value.series[0].values.tolist() == expected.value.series[0].values.tolist()


def test_it_is_small_and_touches_nothing_else() -> None:
    folder = Path(__file__).parent / "toy_count"
    assert sum(len(path.read_text().splitlines()) for path in folder.glob("*.py")) < 150


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no such language"):
        languages.language("sql-ish")
