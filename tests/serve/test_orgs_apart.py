"""One org sees nothing of another, whatever it sends: keys, headers, labels, paths, query texts."""

from __future__ import annotations

import base64
import itertools
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import orjson
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.serve.caller import Caller
from tests.query.ingesting import ingest
from tests.serve.log_requests import log_request
from tests.serve.served import END_S, START_S, Served, TwoOrgs, serving

#: What only the other org's data holds. None of it may occur in an answer.
THEIRS = "secret_"


@pytest.fixture(scope="module")
def guarded(two_orgs: TwoOrgs) -> Iterator[Served]:
    with serving(two_orgs.lake) as serve:
        yield serve(two_orgs.auth)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_the_victim_has_something_to_see(guarded: Served, two_orgs: TwoOrgs) -> None:
    for path, params in requests_of(two_orgs):
        answer = send(guarded, path, params, bearer(two_orgs.secrets["theirs"]))
        assert answer.status_code == 200
    lines = send(
        guarded,
        "/loki/api/v1/query_range",
        {"query": '{secret_field="secret_value"}', **TIMES},
        bearer(two_orgs.secrets["theirs"]),
    )
    assert f"{THEIRS}line 7" in lines.text
    seen = send(guarded, "series", {"match[]": '{__name__!=""}', **TIMES}, bearer(two_orgs.secrets["theirs"]))
    assert THEIRS in seen.text


TIMES = {"start": START_S, "end": END_S}


def queries(two_orgs: TwoOrgs) -> list[str]:
    org, name = str(two_orgs.theirs), "theirs"
    return [
        "secret_up",
        '{__name__=~"secret_.*"}',
        '{__name__!=""}',
        f'{{__name__!="", org="{name}"}}',
        f'{{__name__!="", org_id="{org}"}}',
        f'{{__name__!="", __org_id__="{org}"}}',
        f'{{__name__!="", __tenant_id__="{org}"}}',
        "our_up or secret_up",
        'count by (__name__) ({__name__=~".+"})',
        f'label_replace(secret_up, "org_id", "{org}", "", "")',
        "absent(secret_up) or secret_up",
        f'{{__name__=~"secret_up|\'; SELECT 1 --|../{org}/.*"}}',
    ]


def requests_of(two_orgs: TwoOrgs) -> list[tuple[str, dict[str, Any]]]:
    texts = queries(two_orgs)
    return [
        *(("query", {"query": text, "time": START_S + 60}) for text in texts),
        *(("query_range", {"query": text, **TIMES, "step": 600}) for text in texts[:4]),
        ("series", {"match[]": '{__name__!=""}', **TIMES}),
        ("labels", TIMES),
        ("label/__name__/values", TIMES),
        ("label/job/values", TIMES),
        ("metadata", {}),
        ("status/tsdb", {}),
        ("query_exemplars", {"query": "secret_up", **TIMES}),
        ("metrics/query", {"q": '{__name__!=""}', "s": START_S * 1000, "e": END_S * 1000, "step": "10m"}),
        *log_requests_of(two_orgs),
    ]


def log_queries(two_orgs: TwoOrgs) -> list[str]:
    org = str(two_orgs.theirs)
    return [
        '{service_name="secret_service"}',
        '{service_name=~".+"}',
        f'{{service_name=~".+", org_id="{org}"}}',
        f'{{__tenant_id__="{org}"}}',
        f'{{service_name=~"secret_.*|\'; SELECT 1 --|../{org}/.*"}} |= "line"',
        '{secret_field="secret_value"} | json | line_format "{{ .secret_field }}"',
    ]


def log_requests_of(two_orgs: TwoOrgs) -> list[tuple[str, dict[str, Any]]]:
    """Requests to Loki's API and to the streams of logs."""
    texts, everything = log_queries(two_orgs), '{service_name=~".+"}'
    streams = {"s": START_S * 1000, "e": END_S * 1000}
    loki = "/loki/api/v1"
    return [
        *((f"{loki}/query_range", {"query": text, **TIMES, "limit": 100}) for text in texts),
        *((f"{loki}/query", {"query": f"count_over_time({text}[1h])", "time": END_S}) for text in texts[:4]),
        *((f"{loki}/query_range", {"query": f"rate({text}[1h])", **TIMES, "step": 600}) for text in texts[:2]),
        (f"{loki}/series", {"match[]": everything, **TIMES}),
        (f"{loki}/labels", TIMES),
        (f"{loki}/label/service_name/values", TIMES),
        (f"{loki}/index/stats", {"query": everything, **TIMES}),
        (f"{loki}/index/volume", {"query": everything, **TIMES}),
        (f"{loki}/index/volume_range", {"query": everything, **TIMES, "step": 600}),
        (f"{loki}/detected_labels", {"query": everything, **TIMES}),
        (f"{loki}/detected_fields", {"query": everything, **TIMES}),
        (f"{loki}/detected_field/secret_field/values", {"query": everything, **TIMES}),
        (f"{loki}/patterns", {"query": everything, **TIMES}),
        *(("logs/query", {"q": text, **streams}) for text in texts[:4]),
    ]


def send(
    served: Served, path: str, params: dict[str, Any], headers: dict[str, str], method: str = "GET"
) -> httpx.Response:
    url = path if path.startswith("/") else f"/api/v1/{path}"
    if method == "POST":
        return served.client.post(url, data=params, headers=headers)
    return served.client.get(url, params=params, headers=headers)


#: They refuse parameters that they do not know.
STREAMS = ("metrics/query", "logs/query")


def attacks_of(two_orgs: TwoOrgs) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """Every request, with every way to claim to be somebody else."""
    ours, org = two_orgs.secrets["ours"], str(two_orgs.theirs)
    basic = base64.b64encode(f"{org}:{ours}".encode()).decode()
    headers: list[dict[str, str]] = [
        bearer(ours),
        {**bearer(ours), "X-Scope-OrgID": org},
        {**bearer(ours), "X-Scope-OrgID": "theirs"},
        {**bearer(ours), "X-Scope-OrgID": f"{two_orgs.ours}|{org}"},
        {**bearer(ours), "x-org-id": org, "X-Tenant": org, "X-Forwarded-User": "theirs", "THANOS-TENANT": org},
        {"Authorization": f"Basic {basic}"},
        {"X-Api-Key": ours, "Cookie": f"org={org}"},
        {"X-Api-Key": ours, "Authorization": "Bearer lrk_wrong"},
        {"X-Scope-OrgID": org},
        {**bearer(two_orgs.secrets["ingest"]), "X-Scope-OrgID": org},
        {**bearer(two_orgs.secrets["admin"]), "X-Scope-OrgID": org},
        bearer(two_orgs.secrets["revoked"]),
    ]
    parameters = [{}, {"org": org, "org_id": org, "tenant": org, "X-Scope-OrgID": org}]
    return [
        (path, {**params, **({} if path in STREAMS else extra)}, header)
        for (path, params), header, extra in itertools.product(requests_of(two_orgs), headers, parameters)
    ]


def test_attacks_see_nothing(guarded: Served, two_orgs: TwoOrgs) -> None:
    # A kept answer of the victim must not reach anybody else either.
    for path, params in requests_of(two_orgs):
        send(guarded, path, params, bearer(two_orgs.secrets["theirs"]))
    attacks = attacks_of(two_orgs)
    assert len(attacks) >= 200

    def attack(case: tuple[str, dict[str, Any], dict[str, str]]) -> tuple[int, str]:
        path, params, headers = case
        answer = send(guarded, path, params, headers)
        # What was sent may come back in an error; data may not.
        told = answer.text if answer.status_code == 200 else ""
        asked = " ".join(str(value) for value in params.values())
        for word in {
            word
            for word in (
                *(
                    f"{THEIRS}{word}"
                    for word in ("job0", "requests_total", "help", "line", "service", "field", "value")
                ),
                f'{THEIRS}up"',
            )
            if word not in asked
        }:
            assert word not in told, (case, told[:300])
        return answer.status_code, told

    with ThreadPoolExecutor(8) as pool:
        statuses = [status for status, _ in pool.map(attack, attacks)]
    assert set(statuses) <= {200, 401}
    assert statuses.count(200) > 50
    assert statuses.count(401) > 50


@pytest.mark.parametrize(
    "path", ["/api/v1/query/../../theirs/api/v1/query", "/theirs/api/v1/query", "/prometheus/theirs/api/v1/query"]
)
def test_paths_choose_no_org(guarded: Served, two_orgs: TwoOrgs, path: str) -> None:
    answer = send(guarded, path, {"query": "secret_up", "time": START_S}, bearer(two_orgs.secrets["ours"]))
    assert answer.status_code in (200, 404)
    assert f"{THEIRS}job" not in answer.text


@pytest.mark.parametrize(
    ("who", "header", "status", "metric"),
    [
        ("ours", "", 200, "our_up"),
        ("ours", "ours", 200, "our_up"),
        ("ours", "theirs", 401, ""),
        ("ours", "nobody", 401, ""),
        ("theirs", "", 200, "secret_up"),
        ("both", "", 400, ""),
        ("both", "ours", 200, "our_up"),
        ("both", "theirs", 200, "secret_up"),
        ("both", "third", 401, ""),
        ("ingest", "", 401, ""),
        ("admin", "", 401, ""),
        ("revoked", "", 401, ""),
    ],
)
def test_who_sees_what(guarded: Served, two_orgs: TwoOrgs, who: str, header: str, status: int, metric: str) -> None:
    headers = bearer(two_orgs.secrets[who]) | ({"X-Scope-OrgID": header} if header else {})
    answer = send(guarded, "query", {"query": '{__name__=~".+_up"}', "time": START_S}, headers)
    assert answer.status_code == status
    document = answer.json()
    if status == 200:
        assert {series["metric"]["__name__"] for series in document["data"]["result"]} == {metric}
    else:
        assert document["status"] == "error"
        assert two_orgs.secrets[who] not in answer.text
        assert ("www-authenticate" in answer.headers) == (status == 401)


def test_an_org_that_is_refused_and_one_that_does_not_exist_look_the_same(guarded: Served, two_orgs: TwoOrgs) -> None:
    answers = [
        send(guarded, "query", {"query": "1"}, {**bearer(two_orgs.secrets["ours"]), "X-Scope-OrgID": name}).text
        for name in ("theirs", "nobody", str(two_orgs.theirs), "00000000-0000-4000-8000-0000000000ff")
    ]
    assert len(set(answers)) == 1


def test_without_a_key_nothing(guarded: Served) -> None:
    for path in ("query", "labels", "status/buildinfo", "rules", "queries", "metrics/query", "format_query"):
        assert guarded.client.get(f"/api/v1/{path}").status_code == 401, path


def test_without_required_keys_there_is_one_org(served: Served) -> None:
    assert send(served, "query", {"query": "1"}, {"X-Scope-OrgID": "default"}).status_code == 200
    assert send(served, "query", {"query": "1"}, {"X-Scope-OrgID": "theirs"}).status_code == 401
    assert send(served, "query", {"query": "1"}, bearer("lrk_wrong")).status_code == 401


def test_running_queries_of_others_are_unknown(guarded: Served, two_orgs: TwoOrgs) -> None:
    guarded.workers.delay_s = 5.0
    try:
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(
                send,
                guarded,
                "query",
                {"query": "secret_up + 1", "time": END_S, "nocache": 1},
                bearer(two_orgs.secrets["theirs"]),
            )
            theirs = bearer(two_orgs.secrets["theirs"])
            listed: list[dict[str, Any]] = []
            end = time.monotonic() + 5
            while not listed and time.monotonic() < end:
                listed = send(guarded, "queries", {}, theirs).json()["queries"]
            assert [query["query"] for query in listed] == ["secret_up + 1"]
            query_id = listed[0]["id"]
            for who in ("ours", "our_admin"):
                others = bearer(two_orgs.secrets[who])
                assert send(guarded, "queries", {}, others).json()["queries"] == []
                assert guarded.client.delete(f"/api/v1/queries/{query_id}", headers=others).status_code == 404
            for who in ("admin", "both_admin"):
                operator = bearer(two_orgs.secrets[who])
                assert [query["id"] for query in send(guarded, "queries", {}, operator).json()["queries"]] == [query_id]
                narrowed = send(guarded, "queries", {}, {**operator, "X-Scope-OrgID": "ours"})
                assert narrowed.json()["queries"] == []
            began = time.monotonic()
            assert guarded.client.delete(f"/api/v1/queries/{query_id}", headers=theirs).status_code == 200
            answer = slow.result()
            assert time.monotonic() - began < 1.5
            assert answer.json()["errorType"] == "canceled"
            assert "victim" in answer.json()["error"]
    finally:
        guarded.workers.delay_s = 0.0


def test_an_operator_names_the_org_whose_limits_it_wants(guarded: Served, two_orgs: TwoOrgs) -> None:
    admin, ours = bearer(two_orgs.secrets["admin"]), bearer(two_orgs.secrets["our_admin"])
    assert send(guarded, "limits", {}, admin).status_code == 400
    assert send(guarded, "limits", {}, {**admin, "X-Scope-OrgID": "theirs"}).json()["org"] == str(two_orgs.theirs)
    assert send(guarded, "limits", {}, ours).json()["org"] == str(two_orgs.ours)
    for org in ("theirs", "nobody"):
        assert send(guarded, "limits", {}, {**ours, "X-Scope-OrgID": org}).status_code == 401
    assert send(guarded, "queries", {}, {**admin, "X-Scope-OrgID": "nobody"}).status_code == 401


def test_a_caller_is_the_same_on_the_other_side_of_the_lane() -> None:
    for operates in (None, frozenset(), frozenset({uuid.UUID(int=7)})):
        caller = Caller(uuid.UUID(int=1), "k", {"max_series": 5}, operates)
        assert Caller.from_json(orjson.loads(orjson.dumps(caller.to_json()))) == caller


def test_labels_are_only_labels(guarded: Served, two_orgs: TwoOrgs) -> None:
    """A label that looks like an org's id is data of whoever sent it."""
    labels = LabelSet.of({"__name__": "our_odd", "org_id": str(two_orgs.theirs)})
    source = MemorySource()
    source.add(labels, [START_S * 1000], [1.0])
    lake, ours = two_orgs.lake, two_orgs.ours
    lake.commit(ours, [lake.put(ours, list(source._series.values()))])
    params = {"query": f'{{org_id="{two_orgs.theirs}"}}', "time": START_S}
    assert len(send(guarded, "query", params, bearer(two_orgs.secrets["ours"])).json()["data"]["result"]) == 1
    assert send(guarded, "query", params, bearer(two_orgs.secrets["theirs"])).json()["data"]["result"] == []


def test_tails_are_apart(guarded: Served, two_orgs: TwoOrgs) -> None:
    """A tail shows the backlog and new entries of its own org, and nothing of another's."""
    org, ours = str(two_orgs.theirs), two_orgs.secrets["ours"]
    url = guarded.url.replace("http", "ws") + "/loki/api/v1/tail?query=%7Bservice_name%3D~%22.%2B%22%7D"
    for header in (
        {},
        {"X-Scope-OrgID": org},
        {**bearer(ours), "X-Scope-OrgID": org},
        bearer("lrk_wrong"),
        bearer(two_orgs.secrets["revoked"]),
        bearer(two_orgs.secrets["ingest"]),
    ):
        with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=header):
            pass
        assert refused.value.response.status_code == 401
    both = (two_orgs.theirs, THEIRS), (two_orgs.ours, "our_")

    def write(word: str) -> None:
        for org_id, prefix in both:
            lines = [(time.time_ns(), f"{prefix}{word}")]
            ingest(two_orgs.lake, org_id, [log_request(f"{prefix}service", lines)])

    write("stored")
    with connect(url, additional_headers=bearer(ours)) as socket:
        assert "our_stored" in (first := str(socket.recv(timeout=20))) and THEIRS not in first
        write("fresh")
        assert "our_fresh" in (second := str(socket.recv(timeout=20))) and THEIRS not in second
        with pytest.raises(TimeoutError):
            socket.recv(timeout=1.5)


def test_deletions_need_an_administrator_and_never_touch_another_org(guarded: Served, two_orgs: TwoOrgs) -> None:
    ours, theirs = bearer(two_orgs.secrets["our_admin"]), bearer(two_orgs.secrets["theirs"])
    wanted = {"signal": "metrics", "match": '{__name__!=""}', **TIMES}
    attacks: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/api/v1/deletes", wanted),
        ("GET", "/api/v1/deletes", {}),
        ("POST", "/api/v1/admin/tsdb/delete_series", {"match[]": '{__name__!=""}'}),
        ("POST", "/loki/api/v1/delete", {"query": '{service_name=~".+"}', "start": START_S, "end": END_S}),
        ("GET", "/loki/api/v1/delete", {}),
    ]
    for method, path, params in attacks:
        for headers in ({}, bearer(two_orgs.secrets["ours"]), theirs, {**ours, "X-Scope-OrgID": "theirs"}):
            assert guarded.client.request(method, path, params=params, headers=headers).status_code == 401, path
    before = send(guarded, "query", {"query": "count(secret_up)", "time": END_S, "nocache": 1}, theirs).json()["data"]
    made = guarded.client.post("/api/v1/deletes", params=wanted, headers=ours).json()
    assert made["state"] == "pending"
    after = send(guarded, "query", {"query": "count(secret_up)", "time": END_S, "nocache": 1}, theirs).json()["data"]
    assert before == after and before["result"]
    path = f"/api/v1/deletes/{made['id']}"
    admin = {**bearer(two_orgs.secrets["admin"]), "X-Scope-OrgID": "theirs"}
    assert guarded.client.get("/api/v1/deletes", headers=admin).json() == {"deletes": []}
    for method in ("GET", "DELETE"):
        assert guarded.client.request(method, path, headers=admin).status_code == 404
    assert guarded.client.get(path, headers=ours).json()["receipt"] is not None
    assert guarded.client.delete(path, headers=ours).json()["state"] == "cancelled"
    assert guarded.client.delete(path, headers=ours).status_code == 409
    refused = guarded.client.post("/api/v1/deletes", params={**wanted, "match": "rate(up[5m])"}, headers=ours)
    assert refused.status_code == 400 and "1:1" in refused.text


def test_materialization_rules_belong_to_the_org_of_the_key(guarded: Served, two_orgs: TwoOrgs) -> None:
    ours, theirs = bearer(two_orgs.secrets["our_admin"]), bearer(two_orgs.secrets["theirs"])
    path = "/api/v1/materialization/rules"
    text = "groups: [{name: g, rules: [{materialize: ours_total, signal: logs, match: '{service_name=\"a\"}'}]}]"
    for headers in ({}, bearer(two_orgs.secrets["ours"]), theirs, {**ours, "X-Scope-OrgID": "theirs"}):
        assert guarded.client.put(path, content=text, headers=headers).status_code == 401
    assert guarded.client.put(path, content=text, headers=ours).json()["added"] == ["ours_total"]
    assert [each["name"] for each in guarded.client.get(path, headers=ours).json()["rules"]] == ["ours_total"]
    admin = {**bearer(two_orgs.secrets["admin"]), "X-Scope-OrgID": "theirs"}
    assert guarded.client.get(path, headers=admin).json() == {"rules": []}
    for method in ("GET", "DELETE"):
        assert guarded.client.request(method, f"{path}/ours_total", headers=admin).status_code == 404
    refused = guarded.client.put(path, content=text.replace("signal: logs", "signal: lgos"), headers=ours)
    assert refused.status_code == 400 and "1:62" in refused.text, refused.text
    assert guarded.client.delete(f"{path}/ours_total", headers=ours).json()["version"] == 1
    assert guarded.client.get(f"{path}/ours_total", headers=ours).status_code == 404
