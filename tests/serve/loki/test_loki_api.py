"""Loki's HTTP API over real log records: what clients send, and what they must get."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.query.worker_lake import WorkerLake
from tests.serve.log_requests import S, log_request, org_with_logs
from tests.serve.served import AuthOf, serving

#: Recent, and with no multiple of 1,000 s near it, where steps of that length end.
NOW_S = int(time.time()) // 1000 * 1000 - 900
CART = [(NOW_S * S + number * S, f'level=info msg="order {number}" took={number}ms') for number in range(50)]
SHOP = [(NOW_S * S + number * S, f'{{"order": {{"id": {number}}}}}') for number in range(20)]


@pytest.fixture(scope="module")
def loki(lake: WorkerLake) -> Iterator[httpx.Client]:
    requests = [
        log_request("cart", CART, {"trace": "abc", 'odd\n"name': "'; DROP TABLE x; --"}),
        log_request("shop", SHOP, level="ERROR"),
    ]
    with serving(lake, AuthOf(org_with_logs(lake, requests))) as serve:
        yield serve().client


NO_VOLUME = {"resultType": "vector", "result": []}
ANY = '{service_name=~".+"}'
TIMES = {"start": str((NOW_S - 60) * S), "end": str((NOW_S + 60) * S)}


def test_entries_of_a_range(loki: httpx.Client) -> None:
    params = {"query": '{service_name="cart"} |= "order 4"', **TIMES, "limit": "3"}
    for answer in (
        loki.get("/loki/api/v1/query_range", params=params),
        loki.post("/loki/api/v1/query_range", data=params),
    ):
        data = answer.json()["data"]
        values = [value for stream in data["result"] for value in stream["values"]]
        assert data["resultType"] == "streams" and len(values) == 3
        assert {value[1] for value in values} == {CART[number][1] for number in (49, 48, 47)}
        assert all(stream["stream"]["odd_name"] == "'; DROP TABLE x; --" for stream in data["result"])
        assert data["stats"]["summary"]["totalEntriesReturned"] == 3
        assert data["stats"]["summary"]["totalBytesProcessed"] >= 0


def test_categorized_labels(loki: httpx.Client) -> None:
    header = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}
    params = {"query": '{service_name="shop"} | json', **TIMES, "limit": "2", "direction": "forward"}
    data = loki.get("/loki/api/v1/query_range", params=params, headers=header).json()["data"]
    assert data["encodingFlags"] == ["categorize-labels"]
    (stream,) = data["result"]
    assert stream["stream"] == {"service_name": "shop"}
    assert [value[2]["parsed"] for value in stream["values"]] == [{"order_id": "0"}, {"order_id": "1"}]
    assert stream["values"][0][2]["structuredMetadata"]["detected_level"] == "error"
    # The header is a list of names.
    for flags, categorized in (("other,categorize-labels", True), ("categorize-labels-too", False)):
        header = {"X-Loki-Response-Encoding-Flags": flags}
        data = loki.get("/loki/api/v1/query_range", params=params, headers=header).json()["data"]
        assert ("encodingFlags" in data) is categorized


def test_values(loki: httpx.Client) -> None:
    query = 'sum by (service_name) (count_over_time({service_name=~".+"}[10m]))'
    vector = loki.get("/loki/api/v1/query", params={"query": query, "time": str(NOW_S + 60)}).json()["data"]
    assert {one["metric"]["service_name"]: one["value"][1] for one in vector["result"]} == {"cart": "50", "shop": "20"}
    matrix = loki.get("/loki/api/v1/query_range", params={"query": query, **TIMES, "step": "60"}).json()["data"]
    assert matrix["resultType"] == "matrix" and matrix["result"][0]["values"][-1] == [NOW_S + 60, "50"]
    # The health check of Grafana's data source.
    checked = loki.get("/loki/api/v1/query", params={"query": "vector(1)+vector(1)", "time": "4000000000"}).json()
    assert checked["data"]["result"][0]["value"][1] == "2"


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("query", {"query": '{service_name="cart"}'}),
        ("query", {"query": "sum("}),
        ("query", {}),
        ("query_range", {"query": '{service_name="cart"}', "limit": "0"}),
        ("query_range", {"query": '{service_name="cart"}', "direction": "up"}),
        ("query_range", {"query": '{service_name="cart"}', "start": "2", "end": "1"}),
        ("query_range", {"query": '{service_name="cart"} | json | line_format "{{"'}),
        ("query_range", {"query": "x" * 20_000}),
        ("query_range", {"query": '{service_name="cart"}', **TIMES, "step": "0.01"}),
        ("query_range", {"query": '{service_name="cart"}', "since": "3600"}),
        ("series", {"match[]": '{service_name="cart"} |= "x"'}),
        ("series", {"match[]": ""}),
        ("series", {"match[]": ["{}", '{service_name="cart"}']}),
        ("labels", {"query": "{}"}),
        ("labels", {"query": " "}),
        ("series", {"match[]": '{service_name="cart"}', "match": "{}"}),
        ("query_range", {"query": '{service_name="cart"}', "limit": "50001"}),
        ("query_range", {"query": '{service_name="cart"}', "step": "60 "}),
        ("query_range", {"query": '{service_name="cart"}', "timeout": "-1"}),
        ("index/stats", {"query": ANY, "interval": "-1"}),
        ("index/stats", {"query": ANY, "step": "0"}),
        ("index/stats", {"query": ANY, "step": "100ms"}),
        ("index/stats", {"query": ANY, "limit": "x"}),
        ("index/stats", {"query": ANY, "direction": "up"}),
        ("index/volume", {"query": ANY, "direction": "up"}),
        ("index/volume", {"query": ANY, "time": "x"}),
        ("index/volume_range", {"query": ANY, "interval": "-1"}),
        ("index/volume_range", {"query": ANY, "direction": "0"}),
        ("detected_fields", {"query": ANY, "step": "x"}),
        ("detected_fields", {"query": ANY, "field_limit": "0"}),
        ("detected_fields", {"query": ANY, "line_limit": "5001"}),
        ("patterns", {"query": ANY, "step": "100ms"}),
        ("index/stats", {"query": "{}"}),
        ("detected_fields", {"query": "{}"}),
        ("index/volume", {"query": 'sum(rate({a="b"}[1m]))'}),
        ("tail", {"query": '{service_name="cart"}'}),
    ],
)
def test_refusals_are_plain_text(loki: httpx.Client, path: str, params: dict[str, str | list[str]]) -> None:
    answer = loki.get(f"/loki/api/v1/{path}", params=params)
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/plain") and answer.text.strip()


def test_limits_bind_what_they_are_about(loki: httpx.Client) -> None:
    """A limit bounds the entries of a log query, and not the series of a metric query."""
    query = 'sum by (service_name) (count_over_time({service_name=~".+"}[10m]))'
    most = str((1 << 63) - 1)
    vector = loki.get("/loki/api/v1/query", params={"query": query, "time": str(NOW_S + 60), "limit": most})
    assert len(vector.json()["data"]["result"]) == 2
    matrix = loki.get("/loki/api/v1/query_range", params={"query": query, **TIMES, "step": "60", "limit": "1"})
    assert len(matrix.json()["data"]["result"]) == 2
    # An instant query has no use for an interval, and does not read it.
    assert loki.get("/loki/api/v1/query", params={"query": query, "interval": "x"}).status_code == 200
    fields = {"query": '{service_name="cart"}', **TIMES}
    for limits, shown in (({"field_limit": "1"}, 1), ({"field_limit": "1", "limit": "2"}, 2), ({"limit": most}, 7)):
        answer = loki.get("/loki/api/v1/detected_fields", params=fields | limits).json()
        assert len(answer["fields"][:7]) == shown, limits


def test_an_answer_that_would_be_too_large_names_its_limit(lake: WorkerLake) -> None:
    org_id = org_with_logs(lake, [log_request("cart", CART)])
    params = {"query": '{service_name="cart"}', **TIMES}
    with serving(lake, AuthOf(org_id)) as serve:
        client = serve(max_answer_bytes=2_000).client
        assert client.get("/loki/api/v1/query_range", params=params | {"limit": "5"}).status_code == 200
        refused = client.get("/loki/api/v1/query_range", params=params | {"limit": "50"})
        assert refused.status_code == 400 and "api.max_answer_bytes" in refused.text


def test_selectors_of_series_count_once(loki: httpx.Client) -> None:
    for params in ({"match[]": ["{}", "{}"]}, {"match[]": '{service_name="cart"}', "match": '{service_name="shop"}'}):
        series = loki.get("/loki/api/v1/series", params={**TIMES, **params}).json()
        assert series["data"] == [{"service_name": "cart"}, {"service_name": "shop"}]


def test_discovery(loki: httpx.Client) -> None:
    assert loki.get("/loki/api/v1/labels", params=TIMES).json()["data"] == ["service_name"]
    values = loki.get("/loki/api/v1/label/service_name/values", params=TIMES).json()
    assert values["data"] == ["cart", "shop"]
    series = loki.get("/loki/api/v1/series", params={**TIMES, "match[]": '{service_name="cart"}'}).json()
    assert series["data"] == [{"service_name": "cart"}]
    stats = loki.get("/loki/api/v1/index/stats", params={**TIMES, "query": '{service_name="cart"}'}).json()
    assert (stats["streams"], stats["entries"]) == (1, 50)
    assert stats["bytes"] == sum(len(line) for _, line in CART)
    volume = loki.get("/loki/api/v1/index/volume", params={**TIMES, "query": '{service_name=~".+"}'}).json()
    assert [one["metric"] for one in volume["data"]["result"]] == [{"service_name": "cart"}, {"service_name": "shop"}]
    for step in ("1", "7", "60", "1000"):
        params = {**TIMES, "query": '{service_name="shop"}', "step": step}
        data = loki.get("/loki/api/v1/index/volume_range", params=params).json()["data"]
        values = data["result"][0]["values"] if data["resultType"] == "matrix" else [data["result"][0]["value"]]
        assert sum(int(value) for _, value in values) == sum(len(line) for _, line in SHOP)
    # One time for every group is a vector.
    assert data["resultType"] == "vector"


@pytest.mark.parametrize(
    ("path", "params", "answer"),
    [
        ("detected_fields", {"query": '{service_name="nobody"}'}, {}),
        ("detected_field/nope/values", {"query": '{service_name="cart"}'}, {}),
        ("labels", {"end": TIMES["start"]}, {"status": "success"}),
        ("label/service_name/values", {"end": TIMES["start"]}, {"status": "success"}),
        ("series", {"end": TIMES["start"]}, {"status": "success", "data": []}),
        ("index/volume_range", {"query": '{service_name="nobody"}'}, NO_VOLUME),
        ("index/volume", {"query": "{}", "start": str(CART[0][0]), "end": str(CART[0][0])}, NO_VOLUME),
        ("index/volume", {"query": "{}", "targetLabels": "service_name,trace"}, NO_VOLUME),
        ("index/volume", {"query": "{}", "targetLabels": "service_name,"}, NO_VOLUME),
        ("detected_fields", {"query": ANY, "start": str(CART[0][0]), "end": str(CART[0][0])}, {}),
        ("detected_labels", {"start": str(CART[0][0]), "end": str(CART[0][0])}, {}),
    ],
)
def test_nothing_looks_as_loki_shows_it(
    loki: httpx.Client, path: str, params: dict[str, str], answer: dict[str, object]
) -> None:
    found = loki.get(f"/loki/api/v1/{path}", params={**TIMES, **params}).json()
    assert (found["data"] if "result" in answer else found) == answer


def test_volumes_of_streams_that_lack_a_target_label(loki: httpx.Client) -> None:
    def volumes(query: str, **params: str) -> list[dict[str, str]]:
        asked = {**TIMES, "query": query, **params}
        return [one["metric"] for one in loki.get("/loki/api/v1/index/volume", params=asked).json()["data"]["result"]]

    targets = "service_name,cloud_region"
    assert volumes('{service_name=~".+"}', targetLabels=targets) == []
    # The query itself says which values of the label will do.
    named = volumes('{service_name=~".+", cloud_region!="x"}', targetLabels=targets)
    assert named == [{"service_name": "cart"}, {"service_name": "shop"}]
    assert volumes("{}", limit="0", aggregateBy="") == named


def test_fields_and_patterns(loki: httpx.Client) -> None:
    fields = loki.get("/loki/api/v1/detected_fields", params={**TIMES, "query": '{service_name="cart"}'}).json()
    found = {field["label"]: field for field in fields["fields"]}
    assert found["took"]["type"] == "duration" and found["took"]["parsers"] == ["logfmt"]
    assert found["trace"]["parsers"] is None and found["number"]["cardinality"] == 50
    values = loki.get("/loki/api/v1/detected_field/trace/values", params={**TIMES, "query": '{service_name="cart"}'})
    assert values.json()["values"] == ["abc"]
    labels = loki.get("/loki/api/v1/detected_labels", params=TIMES).json()
    assert labels == {"detectedLabels": [{"label": "service_name", "cardinality": 2}]}
    patterns = loki.get("/loki/api/v1/patterns", params={**TIMES, "query": '{service_name="cart"}'}).json()["data"]
    assert [(each["level"], sum(number for _, number in each["samples"])) for each in patterns] == [("info", 50)]
    assert "<_>" in patterns[0]["pattern"]


def test_what_clients_ask_before_they_query(loki: httpx.Client) -> None:
    assert loki.get("/loki/api/v1/status/buildinfo").json()["version"].startswith("3.")
    assert loki.get("/ready").status_code == 200
    assert "Grafana" in loki.get("/").text
    limits = loki.get("/loki/api/v1/drilldown-limits").json()["limits"]
    assert limits["volume_enabled"] and limits["pattern_persistence_enabled"]
    # Clients read durations in Go's spelling, which has no exponents.
    assert all(re.fullmatch(r"\d+(ms|s)", limits[name]) for name in ("max_query_length", "query_timeout"))
    assert loki.get("/prometheus/api/v1/rules").json()["data"] == {"groups": []}
    formatted = loki.get("/loki/api/v1/format_query", params={"query": '{a="b"}|json'}).json()
    assert formatted == {"status": "success", "data": '{a="b"} | json'}
    bad = loki.get("/loki/api/v1/format_query", params={"query": "{"})
    assert bad.status_code == 400 and bad.json()["status"] == "invalid-query"


def test_head_changes_nothing(loki: httpx.Client) -> None:
    """HEAD is a safe method. A handler that takes what is not GET for a change would delete."""
    wanted = {"query": '{service_name="cart"}', **TIMES}
    for path in ("delete", "rules/space", "rules/space/group", "query_range"):
        assert loki.head(f"/loki/api/v1/{path}", params=wanted).status_code == 405
    lake = {"signal": "logs", "match": '{service_name="cart"}', "start": str(NOW_S - 60), "end": str(NOW_S + 60)}
    assert loki.head("/api/v1/deletes", params=lake).status_code == 405
    assert loki.get("/loki/api/v1/delete").json() == []
    assert loki.get("/loki/api/v1/index/stats", params=wanted).json()["entries"] == 50
