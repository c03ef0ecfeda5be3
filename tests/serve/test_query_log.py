"""The query log: who asked what, and what it cost; bounded, without secrets; and rules suggested from it over HTTP."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.index.orgs import create_org
from lakerunner.index.query_log import LoggedQuery, add_queries, forget_queries, logged_queries
from lakerunner.model.signals import LOGS
from lakerunner.query.lake import open_lake
from tests.pipeline.compact.small_lake import ingest
from tests.pipeline.lake import ORG, Lake, settings_of
from tests.query.rules.rewrites import records
from tests.serve.served import AuthOf, Serve, serving_lakes

QUERY = 'sum by (route) (count_over_time({service_name=~"api|cart"} |= "o" [1m]))'
START_S = records.START_NS // 1_000_000_000


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(settings_of(database_url, tmp_path))
    with lake.database.transaction() as tx:
        create_org(tx, "acme", ORG)
    rng = random.Random(3)
    ingest(lake, *(lake.put(LOGS, request) for request in records.batch(rng, 200)))
    yield lake
    lake.close()


def _ask(served: object, query: str, path: str = "/loki/api/v1/query_range", **more: object) -> None:
    params = {"query": query, "start": START_S, "end": START_S + 240, "step": 30, **more}
    answer = served.client.get(path, params=params)  # type: ignore[attr-defined]
    assert answer.status_code == 200, answer.text


def _logged(lake: Lake) -> list[LoggedQuery]:
    with lake.database.transaction() as tx:
        return logged_queries(tx, ORG, 7, 100)


def test_what_was_asked_is_logged_and_rules_are_suggested_from_it(lake: Lake) -> None:
    opened = open_lake(lake.settings, lake.database)
    try:
        with serving_lakes() as serve:
            _check_logged(lake, serve, opened)
            silent = serve(opened, AuthOf(ORG), query_log=False)
            before = _logged(lake)
            _ask(silent, QUERY)
            silent.api.close()
            assert _logged(lake) == before, "it is switched off"
    finally:
        opened.close()


def _check_logged(lake: Lake, serve: Serve, opened: object) -> None:
    served = serve(opened, AuthOf(ORG), shadow_share=0.0)
    _ask(served, QUERY)
    _ask(served, QUERY)
    _ask(served, 'sum(count_over_time({service_name="api"} |= "password=hunter2 x" [1m]))')
    _ask(served, "sum(rate(up[1m]))", "/api/v1/query_range")
    # Rows are no metric query.
    _ask(served, '{service_name="api"}')
    served.api.service.log.flush()
    found = {each.query: each for each in _logged(lake)}
    masked = 'sum(count_over_time({service_name="api"} |= "password=*** x"[1m]))'
    assert {*found} == {QUERY.replace(") (", ")(").replace(" [1m]", "[1m]"), masked, "sum(rate(up[1m]))"}
    assert "hunter2" not in str(lake.value("SELECT string_agg(query, ' ') FROM query_log"))
    own = next(each for each in found.values() if "route" in each.query)
    assert (own.asked, own.cached, own.asked_by) == (2, 1, "test")
    assert own.range_ms == 240_000 and own.step_ms == 30_000 and own.rows_read > 0 and own.cpu_s > 0
    answer = served.client.get("/api/v1/materialization/suggestions").json()
    (only,) = answer["suggestions"]
    assert only["rule"]["dimensions"] == ["route"] and only["asked"] == 2
    applied = served.client.put("/api/v1/materialization/rules", content=answer["file"])
    assert applied.json()["added"] == [only["rule"]["materialize"]], applied.text
    assert served.client.get("/api/v1/materialization/suggestions").json()["suggestions"] == []
    assert served.client.get("/api/v1/materialization/suggestions", params={"days": 0}).status_code == 400


def test_the_log_is_bounded_and_forgets(lake: Lake) -> None:
    entries = [LoggedQuery(ORG, "logql", f"q{number}", 0, 0, "key", asked=1) for number in range(5)]
    other = LoggedQuery(uuid.UUID(int=8), "logql", "q", 0, 0, "key", asked=1)
    with lake.database.transaction() as tx:
        assert add_queries(tx, [*entries, other], 3) == 2
        assert add_queries(tx, entries, 3) == 2
    assert [each.asked for each in _logged(lake)] == [2, 2, 2], "one org never sees another's"
    with lake.database.transaction() as tx:
        assert forget_queries(tx, 86_400, 10) == 0
        tx.execute("UPDATE query_log SET day = day - 3")
        assert forget_queries(tx, 86_400, 3) == 3 and forget_queries(tx, 86_400, 3) == 1
