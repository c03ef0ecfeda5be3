"""The wire shapes of Prometheus' API: what Grafana, promtool and client libraries parse, by GET and by form."""

from __future__ import annotations

import gzip
import subprocess
from typing import Any

import httpx
import pytest
import zstandard

from tests.components.peers import peer
from tests.serve.conftest import END_S, START_S, House, MakeHouse

BOTH = pytest.mark.parametrize("method", ["GET", "POST"])


def ask(house: House, method: str, path: str, **params: Any) -> httpx.Response:
    if method == "GET":
        return house.client.get(f"/api/v1/{path}", params=params)
    return house.client.post(f"/api/v1/{path}", data=params)


@BOTH
def test_grafanas_health_check(house: House, method: str) -> None:
    answer = ask(house, method, "query", query="1+1", time="4")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.text == '{"status":"success","data":{"resultType":"scalar","result":[4,"2"]}}'


@BOTH
def test_instant_vector(house: House, method: str) -> None:
    answer = ask(house, method, "query", query='requests_total{job="job1"}', time=START_S + 60.5)
    assert answer.json() == {
        "status": "success",
        "data": {
            "resultType": "vector",
            "result": [
                {
                    "metric": {"__name__": "requests_total", "code": "200", "job": "job1"},
                    "value": [START_S + 60.5, "8"],
                }
            ],
        },
    }
    assert f"[{START_S + 60}.500," in answer.text


@BOTH
def test_range_matrix_with_infos(house: House, method: str) -> None:
    answer = ask(
        house, method, "query_range", query="sum(rate(up[1m]))", start=START_S + 60, end=START_S + 120, step=30
    )
    document = answer.json()
    assert document["data"] == {
        "resultType": "matrix",
        "result": [{"metric": {}, "values": [[START_S + 60, "0"], [START_S + 90, "0"], [START_S + 120, "0"]]}],
    }
    assert "metric might not be a counter" in document["infos"][0]
    assert "warnings" not in document


def test_string_raw_range_and_special_values(house: House) -> None:
    assert ask(house, "GET", "query", query='"a\\"b"', time=1).json()["data"] == {
        "resultType": "string",
        "result": [1, 'a"b'],
    }
    raw = ask(house, "GET", "query", query='up{job="job0"}[30s]', time=START_S + 40).json()["data"]
    assert raw["resultType"] == "matrix"
    assert raw["result"][0]["values"] == [[START_S + 15, "1"], [START_S + 30, "1"]]
    for text, shown in (("1/0", "+Inf"), ("-1/0", "-Inf"), ("0/0", "NaN"), ("1e-7", "1e-07"), ("1e20", "1" + 20 * "0")):
        assert ask(house, "GET", "query", query=text, time=1).json()["data"]["result"] == [1, shown]


def test_native_histograms(house: House) -> None:
    shown = {"count": "3", "sum": "4.5", "buckets": [[0, "0.5", "1", "1"], [0, "2", "4", "2"]]}
    metric = {"__name__": "latency", "job": "job0"}
    instant = ask(house, "GET", "query", query="latency", time=START_S).json()
    assert instant["data"]["result"] == [{"metric": metric, "histogram": [START_S, shown]}]
    matrix = ask(house, "GET", "query_range", query="latency", start=START_S, end=START_S + 15, step=15).json()
    assert matrix["data"]["result"] == [{"metric": metric, "histograms": [[START_S, shown], [START_S + 15, shown]]}]


@BOTH
def test_labels_and_series(house: House, method: str) -> None:
    times = {"start": START_S, "end": END_S}
    assert ask(house, method, "labels", **times).json()["data"] == ["__name__", "code", "job"]
    assert ask(house, method, "labels", **times, **{"match[]": "latency"}).json()["data"] == ["__name__", "job"]
    series = ask(house, method, "series", **times, **{"match[]": ["latency", 'up{job="job2"}']}).json()["data"]
    assert series == [
        {"__name__": "latency", "job": "job0"},
        {"__name__": "up", "code": "200", "job": "job2"},
    ]
    limited = ask(house, method, "series", **times, **{"match[]": "up"}, limit=1).json()
    assert len(limited["data"]) == 1
    assert limited["warnings"] == ["results truncated due to limit"]
    assert ask(house, method, "labels", start=1, end=2).json()["data"] == []


def test_label_values_with_escaped_names(house: House) -> None:
    times = {"start": START_S, "end": END_S}
    for name in ("job", "U__job", "U__j_6f_b"):
        assert ask(house, "GET", f"label/{name}/values", **times).json()["data"] == ["job0", "job1", "job2"]
    limited = ask(house, "GET", "label/job/values", **times, limit=2).json()
    assert (limited["data"], limited["warnings"]) == (["job0", "job1"], ["results truncated due to limit"])
    assert ask(house, "GET", "label/job/values", **times, **{"match[]": "latency"}).json()["data"] == ["job0"]
    assert ask(house, "GET", "label/U__x_2e_y/values", **times).json()["data"] == []


@BOTH
def test_exemplars(house: House, method: str) -> None:
    answer = ask(house, method, "query_exemplars", query="rate(requests_total[1m])", start=START_S, end=END_S)
    assert answer.json()["data"] == [
        {
            "seriesLabels": {"__name__": "requests_total", "job": "job0"},
            "exemplars": [{"labels": {"trace_id": "abc"}, "value": "6", "timestamp": START_S + 0.479}],
        }
    ]


def test_documents_that_clients_ask_for_first(house: House) -> None:
    build = ask(house, "GET", "status/buildinfo").json()["data"]
    assert build["version"].startswith("3.")
    assert "features" not in build
    assert ask(house, "GET", "metadata").json()["data"] == {
        "requests_total": [{"type": "counter", "help": "Requests.", "unit": ""}]
    }
    assert ask(house, "GET", "metadata", metric="nothing").json()["data"] == {}
    assert ask(house, "GET", "rules").json()["data"] == {"groups": []}
    assert ask(house, "GET", "alerts").json()["data"] == {"alerts": []}
    assert ask(house, "GET", "status/config").json()["data"] == {"yaml": ""}
    assert ask(house, "GET", "status/flags").json()["data"] == {}
    tsdb = ask(house, "GET", "status/tsdb", limit=1).json()["data"]
    assert tsdb["headStats"]["numSeries"] == 7
    assert tsdb["seriesCountByMetricName"] == [{"name": "requests_total", "value": 3}]


@BOTH
def test_the_language_without_data(house: House, method: str) -> None:
    assert ask(house, method, "format_query", query="sum(up)by(job)").json()["data"] == "sum by (job) (up)"
    tree = ask(house, method, "parse_query", query='-rate(up{job="a"}[5m] offset 1m)').json()["data"]
    assert tree["type"] == "unaryExpr"
    call = tree["expr"]
    assert call["func"] == {"name": "rate", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector"}
    selector = call["args"][0]
    assert (selector["type"], selector["range"], selector["offset"]) == ("matrixSelector", 300_000, 60_000)


def test_health(house: House) -> None:
    for path in ("/-/healthy", "/-/ready", "/ready"):
        assert house.client.get(path).status_code == 200


@pytest.mark.parametrize(
    ("path", "params", "status", "kind", "said"),
    [
        ("query", {}, 400, "bad_data", '"query"'),
        ("query", {"query": "sum("}, 400, "bad_data", "1:5"),
        ("query", {"query": "up", "time": "yesterday"}, 400, "bad_data", '"time"'),
        ("query", {"query": "up", "time": "NaN"}, 400, "bad_data", '"time"'),
        ("query", {"query": "up", "timeout": "soon"}, 400, "bad_data", '"timeout"'),
        ("query", {"query": "up", "limit": "-1"}, 400, "bad_data", '"limit"'),
        ("query", {"query": 'up{job=~"("}'}, 400, "bad_data", "regular expression"),
        ("query", {"query": "up", "lookback_delta": "0"}, 400, "bad_data", "lookback_delta"),
        ("query_range", {"query": "up"}, 400, "bad_data", '"start"'),
        ("query_range", {"query": "up", "start": 2, "end": 1, "step": 1}, 400, "bad_data", '"end"'),
        ("query_range", {"query": "up", "start": 1, "end": 2, "step": 0}, 400, "bad_data", '"step"'),
        ("query_range", {"query": "up[1m]", "start": 1, "end": 2, "step": 1}, 400, "bad_data", "range query"),
        ("query_range", {"query": "up", "start": 0, "end": 99_999, "step": 1}, 422, "execution", "api.max_steps"),
        ("query", {"query": "up * on (code) up", "time": START_S}, 422, "execution", "many-to-many"),
        ("series", {}, 400, "bad_data", "match[]"),
        ("series", {"match[]": "rate(up[1m])"}, 400, "bad_data", "selector"),
        ("series", {"match[]": '{job=~".*"}'}, 400, "bad_data", "empty"),
        ("query_exemplars", {"query": "up"}, 400, "bad_data", '"start"'),
        ("format_query", {"query": "up{"}, 400, "bad_data", "1:4"),
    ],
)
@BOTH
def test_errors_have_the_shape(
    house: House, method: str, path: str, params: dict[str, Any], status: int, kind: str, said: str
) -> None:
    answer = ask(house, method, path, **params)
    document = answer.json()
    assert (answer.status_code, document["status"], document["errorType"]) == (status, "error", kind), document
    assert said in document["error"]
    assert set(document) == {"status", "errorType", "error"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1700000000", 1_700_000_000),
        ("1700000000.123", 1_700_000_000.123),
        ("2023-11-14T22:13:20Z", 1_700_000_000),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000.5),
        ("1.7e9", 1_700_000_000),
    ],
)
def test_times(house: House, text: str, seconds: float) -> None:
    assert ask(house, "GET", "query", query="1", time=text).json()["data"]["result"][0] == seconds


@pytest.mark.parametrize("step", ["30", "30.0", "30s", "0h0m30s", "30000ms"])
def test_steps(house: House, step: str) -> None:
    answer = ask(house, "GET", "query_range", query="1", start=0, end=60, step=step).json()
    assert [point[0] for point in answer["data"]["result"][0]["values"]] == [0, 30, 60]


def test_lookback_limit_and_stats(house: House) -> None:
    late = END_S + 200
    assert len(ask(house, "GET", "query", query="up", time=late).json()["data"]["result"]) == 3
    short = ask(house, "GET", "query", query="up", time=late, lookback_delta="1m").json()
    assert short["data"]["result"] == []
    limited = ask(house, "GET", "query", query="up", time=START_S, limit=2).json()
    assert len(limited["data"]["result"]) == 2
    assert limited["warnings"] == ["results truncated due to limit"]
    stats = ask(house, "GET", "query", query="up", time=START_S, stats="all", nocache=1).json()["data"]["stats"]
    assert stats["samples"]["totalQueryableSamples"] > 0
    explain = ask(house, "GET", "query", query="up", time=START_S, explain=1, nocache=1).json()["explain"]
    assert (explain["segmentsRead"], explain["cache"], explain["selectors"]) == (1, "bypass", [{"segments": 1}])


def test_compression(house: House) -> None:
    params = {"query": "up", "start": START_S, "end": END_S, "step": 15}
    with house.client.stream(
        "GET", "/api/v1/query_range", params=params, headers={"Accept-Encoding": "identity"}
    ) as plain:
        body = b"".join(plain.iter_raw())
        assert "content-encoding" not in plain.headers
    for encoding, unpack in (
        ("gzip", gzip.decompress),
        ("zstd", zstandard.ZstdDecompressor().decompress),
    ):
        with house.client.stream(
            "GET", "/api/v1/query_range", params=params, headers={"Accept-Encoding": f"{encoding}, br;q=0"}
        ) as packed:
            raw = b"".join(packed.iter_raw())
            assert packed.headers["content-encoding"] == encoding
        assert len(raw) < len(body) / 5
        assert unpack(raw) == body


def test_answers_are_kept_while_the_segments_are_the_same(make_house: MakeHouse) -> None:
    house = make_house()
    params = {"query": "sum(up)", "start": START_S, "end": END_S, "step": 60}

    def outcome(**headers: str) -> str:
        answer = house.client.get("/api/v1/query_range", params=params, headers=headers)
        assert answer.status_code == 200
        return answer.headers["x-lakerunner-cache"]

    assert outcome() == "miss"
    assert outcome() == "hit"
    assert outcome(**{"Cache-Control": "no-cache"}) == "bypass"
    params["query"] = "sum( up )"
    assert outcome() == "hit"
    house.lake.version += 1
    assert outcome() == "miss"


def test_an_answer_that_misses_something_says_so_and_is_not_kept(make_house: MakeHouse) -> None:
    house = make_house()
    source = house.lake.source

    def failing(*args: Any) -> Any:
        scan = source(*args)
        scan.counted.segments_failed = 1
        scan.counted.segments_planned = 4
        return scan

    house.lake.source = failing  # type: ignore[method-assign]
    for _ in range(2):
        answer = ask(house, "GET", "query", query="up", time=START_S)
        assert answer.json()["warnings"] == ["1 of 5 segments could not be read"]
        assert answer.headers["x-lakerunner-cache"] == "miss"


def test_promtool(house: House) -> None:
    promtool = peer("promtool")

    def run(*args: str) -> str:
        done = subprocess.run([promtool, "query", *args], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    at = f"--time={START_S}"
    assert run("instant", house.url, 'up{job="job0"}', at) == f'up{{code="200", job="job0"}} => 1 @[{START_S}]\n'
    times = [f"--start={START_S}", f"--end={START_S + 15}"]
    assert f"1 @[{START_S + 15}]" in run("range", house.url, "up", *times, "--step=15s")
    assert run("series", house.url, "--match=latency", *times) == '{__name__="latency", job="job0"}\n'
    assert run("labels", house.url, "job", *times) == "job0\njob1\njob2\n"
    assert "Buckets: [(0.5,1]:1 (2,4]:2]" in run("instant", house.url, "latency", at)
