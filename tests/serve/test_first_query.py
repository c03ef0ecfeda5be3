"""The query that the API asks itself uses the paths of a client's, and needs no index to answer."""

from __future__ import annotations

import pytest

from lakerunner.index.database import Database
from lakerunner.model.errors import Unavailable
from lakerunner.query.rewriting import Ruled
from lakerunner.serve import first_query
from tests.query.worker_lake import WorkerLake


def test_a_rule_answers_it(lake: WorkerLake, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[object] = []
    run = first_query.run

    def noted(plan, *given):
        plans.append(plan)
        return run(plan, *given)

    monkeypatch.setattr(first_query, "run", noted)
    first_query.ask_first(lake.lake)
    (plan,) = plans
    # Else the statements of the lookup would be others.
    assert isinstance(plan, Ruled) and plan.reads and not plan.splits


def test_without_an_index_the_api_starts_all_the_same(lake: WorkerLake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def down(database: Database, call: object) -> None:
        asked.append(call)
        raise Unavailable("cannot reach the index")

    monkeypatch.setattr(Database, "read", down)
    first_query.ask_first(lake.lake)
    assert asked
