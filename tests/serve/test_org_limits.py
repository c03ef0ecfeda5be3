"""An org with limits of its own: they hold for it alone, and from a moment after they were set."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from lakerunner.index import org_limits
from lakerunner.serve import auth as auth_module
from tests.serve.served import END_S, START_S, Serve, TwoOrgs


def set_limits(two: TwoOrgs, **limits: float) -> None:
    with two.auth._database.transaction() as tx:
        org_limits.unset_limits(tx, two.ours, org_limits.LIMIT_NAMES)
        org_limits.set_limits(tx, two.ours, limits)
    two.auth._limits.clear()


@pytest.fixture
def ask(serve: Serve, two_orgs: TwoOrgs):  # type: ignore[no-untyped-def]
    served = serve(two_orgs.auth)

    def asked(who: str, path: str = "query_range", **params: object) -> httpx.Response:
        prefix = "our_" if who == "ours" else "secret_"
        times = {"start": START_S, "end": END_S, "step": 60} if path == "query_range" else {}
        query = {"query": f"{prefix}up", "nocache": 1} if path == "query_range" else {}
        headers = {"Authorization": f"Bearer {two_orgs.secrets[who]}"}
        return served.client.get(f"/api/v1/{path}", params={**query, **times, **params}, headers=headers)

    yield asked
    set_limits(two_orgs)


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"max_series": 2}, "api.max_series"),
        ({"max_samples": 100}, "api.max_samples"),
        ({"max_bytes": 100}, "api.max_bytes"),
        ({"max_steps": 10}, "api.max_steps"),
        ({"max_range_s": 600}, "api.max_range_s"),
        ({"max_points": 10}, "api.max_points"),
        ({"timeout_s": 0.000_001}, "api.timeout_s"),
    ],
)
def test_a_limit_of_ones_own(ask, two_orgs: TwoOrgs, limits: dict[str, float], named: str) -> None:  # type: ignore[no-untyped-def]
    assert ask("ours").status_code == 200
    set_limits(two_orgs, **limits)
    answer = ask("ours")
    assert answer.status_code == {"api.max_steps": 400, "api.timeout_s": 503}.get(named, 422)
    assert named in answer.json()["error"]
    assert ";" in answer.json()["error"], "a hint follows"
    assert ask("theirs").status_code == 200, "another org has the settings'"
    told = ask("ours", "limits").json()
    assert told["own"] == list(limits)
    assert {name: told["limits"][name] for name in limits} == limits
    assert ask("theirs", "limits").json()["own"] == []


def test_a_change_is_seen_without_a_restart(ask, two_orgs: TwoOrgs, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(auth_module, "_LIMITS_TTL_S", 0.3)
    assert ask("ours").status_code == 200
    with two_orgs.auth._database.transaction() as tx:
        org_limits.set_limits(tx, two_orgs.ours, {"max_steps": 3})
    end = time.monotonic() + 5
    while ask("ours").status_code == 200:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_queries_at_once(serve: Serve, two_orgs: TwoOrgs) -> None:
    set_limits(two_orgs, org_queries=1)
    served = serve(two_orgs.auth)
    served.workers.delay_s = 0.3
    headers = {"Authorization": f"Bearer {two_orgs.secrets['ours']}"}

    def asked(number: int) -> httpx.Response:
        params = {"query": f"our_up + {number}", "time": END_S}
        return served.client.get("/api/v1/query", params=params, headers=headers)

    began = time.monotonic()
    try:
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(asked, range(3)))
    finally:
        set_limits(two_orgs)
    assert all(answer.json()["data"]["result"] for answer in answers)
    assert time.monotonic() - began >= 0.9
