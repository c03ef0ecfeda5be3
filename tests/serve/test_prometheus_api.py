"""The wire shapes of Prometheus' API: what Grafana, promtool and client libraries parse, by GET and by form."""

from __future__ import annotations

import gzip
import subprocess
import uuid
from typing import Any

import httpx
import pytest
import zstandard

from lakerunner.model.segment import Segment
from lakerunner.store import keys
from tests.components.peers import peer
from tests.query.worker_lake import WorkerLake
from tests.serve.served import END_S, START_S, AuthOf, Serve, Served, write_filled

BOTH = pytest.mark.parametrize("method", ["GET", "POST"])


def ask(served: Served, method: str, path: str, **params: Any) -> httpx.Response:
    if method == "GET":
        return served.client.get(f"/api/v1/{path}", params=params)
    return served.client.post(f"/api/v1/{path}", data=params)


@BOTH
def test_grafanas_health_check(served: Served, method: str) -> None:
    answer = ask(served, method, "query", query="1+1", time="4")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.text == '{"status":"success","data":{"resultType":"scalar","result":[4,"2"]}}'


@BOTH
def test_instant_vector(served: Served, method: str) -> None:
    answer = ask(served, method, "query", query='requests_total{job="job1"}', time=START_S + 60.5)
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
def test_range_matrix_with_infos(served: Served, method: str) -> None:
    answer = ask(
        served, method, "query_range", query="sum(rate(up[1m]))", start=START_S + 60, end=START_S + 120, step=30
    )
    document = answer.json()
    assert document["data"] == {
        "resultType": "matrix",
        "result": [{"metric": {}, "values": [[START_S + 60, "0"], [START_S + 90, "0"], [START_S + 120, "0"]]}],
    }
    assert "metric might not be a counter" in document["infos"][0]
    assert "warnings" not in document


def test_string_raw_range_and_special_values(served: Served) -> None:
    assert ask(served, "GET", "query", query='"a\\"b"', time=1).json()["data"] == {
        "resultType": "string",
        "result": [1, 'a"b'],
    }
    raw = ask(served, "GET", "query", query='up{job="job0"}[30s]', time=START_S + 40).json()["data"]
    assert raw["resultType"] == "matrix"
    assert raw["result"][0]["values"] == [[START_S + 15, "1"], [START_S + 30, "1"]]
    for text, shown in (("1/0", "+Inf"), ("-1/0", "-Inf"), ("0/0", "NaN"), ("1e-7", "1e-07"), ("1e20", "1" + 20 * "0")):
        assert ask(served, "GET", "query", query=text, time=1).json()["data"]["result"] == [1, shown]


def test_native_histograms(served: Served) -> None:
    shown = {"count": "3", "sum": "4.5", "buckets": [[0, "0.5", "1", "1"], [0, "2", "4", "2"]]}
    metric = {"__name__": "latency", "job": "job0"}
    instant = ask(served, "GET", "query", query="latency", time=START_S).json()
    assert instant["data"]["result"] == [{"metric": metric, "histogram": [START_S, shown]}]
    matrix = ask(served, "GET", "query_range", query="latency", start=START_S, end=START_S + 15, step=15).json()
    assert matrix["data"]["result"] == [{"metric": metric, "histograms": [[START_S, shown], [START_S + 15, shown]]}]


@BOTH
def test_labels_and_series(served: Served, method: str) -> None:
    times = {"start": START_S, "end": END_S}
    assert ask(served, method, "labels", **times).json()["data"] == ["__name__", "code", "job"]
    assert ask(served, method, "labels", **times, **{"match[]": "latency"}).json()["data"] == ["__name__", "job"]
    series = ask(served, method, "series", **times, **{"match[]": ["latency", 'up{job="job2"}']}).json()["data"]
    assert series == [
        {"__name__": "latency", "job": "job0"},
        {"__name__": "up", "code": "200", "job": "job2"},
    ]
    limited = ask(served, method, "series", **times, **{"match[]": "up"}, limit=1).json()
    assert len(limited["data"]) == 1
    assert limited["warnings"] == ["results truncated due to limit"]
    assert ask(served, method, "labels", start=1, end=2).json()["data"] == []


def test_label_values_with_escaped_names(served: Served) -> None:
    times = {"start": START_S, "end": END_S}
    for name in ("job", "U__job", "U__j_6f_b"):
        assert ask(served, "GET", f"label/{name}/values", **times).json()["data"] == ["job0", "job1", "job2"]
    limited = ask(served, "GET", "label/job/values", **times, limit=2).json()
    assert (limited["data"], limited["warnings"]) == (["job0", "job1"], ["results truncated due to limit"])
    assert ask(served, "GET", "label/job/values", **times, **{"match[]": "latency"}).json()["data"] == ["job0"]
    assert ask(served, "GET", "label/U__x_2e_y/values", **times).json()["data"] == []


@BOTH
def test_exemplars(served: Served, method: str) -> None:
    answer = ask(served, method, "query_exemplars", query="rate(requests_total[1m])", start=START_S, end=END_S)
    assert answer.json()["data"] == [
        {
            "seriesLabels": {"__name__": "requests_total", "code": "200", "job": "job0"},
            "exemplars": [{"labels": {"trace_id": "abc"}, "value": "6", "timestamp": START_S + 0.479}],
        }
    ]


def test_documents_that_clients_ask_for_first(served: Served) -> None:
    build = ask(served, "GET", "status/buildinfo").json()["data"]
    assert build["version"].startswith("3.")
    assert "features" not in build
    assert ask(served, "GET", "metadata").json()["data"] == {
        "latency": [{"type": "unknown", "help": "about latency", "unit": "s"}],
        "requests_total": [{"type": "counter", "help": "Requests.", "unit": ""}],
        "up": [{"type": "unknown", "help": "about up", "unit": "s"}],
    }
    assert ask(served, "GET", "metadata", metric="nothing").json()["data"] == {}
    assert ask(served, "GET", "rules").json()["data"] == {"groups": []}
    assert ask(served, "GET", "alerts").json()["data"] == {"alerts": []}
    assert ask(served, "GET", "status/config").json()["data"] == {"yaml": ""}
    assert ask(served, "GET", "status/flags").json()["data"] == {}
    runtime = ask(served, "GET", "status/runtimeinfo").json()["data"]
    assert runtime["startTime"] <= runtime["serverTime"] and runtime["reloadConfigSuccess"] is True
    assert (runtime["CWD"], runtime["hostname"]) == ("", "")
    assert ask(served, "GET", "targets/metadata").json()["data"] == []
    assert ask(served, "GET", "scrape_pools").json()["data"] == {"scrapePools": []}
    tsdb = ask(served, "GET", "status/tsdb", limit=1).json()["data"]
    assert tsdb["headStats"]["numSeries"] == 7
    assert tsdb["seriesCountByMetricName"] == [{"name": "requests_total", "value": 3}]


@BOTH
def test_the_language_without_data(served: Served, method: str) -> None:
    assert ask(served, method, "format_query", query="sum(up)by(job)").json()["data"] == "sum by (job) (up)"
    tree = ask(served, method, "parse_query", query='-rate(up{job="a"}[5m] offset 1m)').json()["data"]
    assert tree["type"] == "unaryExpr"
    call = tree["expr"]
    assert call["func"] == {"name": "rate", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector"}
    selector = call["args"][0]
    assert (selector["type"], selector["range"], selector["offset"]) == ("matrixSelector", 300_000, 60_000)


def test_health(served: Served) -> None:
    for path in ("/-/healthy", "/-/ready", "/ready"):
        assert served.client.get(path).status_code == 200


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
        ("query_range", {"query": "up"}, 400, "bad_data", '"start"'),
        ("query_range", {"query": "up", "start": 2, "end": 1, "step": 1}, 400, "bad_data", '"end"'),
        ("query_range", {"query": "up", "start": 1, "end": 2, "step": 0}, 400, "bad_data", '"step"'),
        ("query_range", {"query": "up[1m]", "start": 1, "end": 2, "step": 1}, 400, "bad_data", "range query"),
        ("query_range", {"query": "up", "start": 0, "end": 99_999, "step": 1}, 400, "bad_data", "api.max_steps"),
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
    served: Served, method: str, path: str, params: dict[str, Any], status: int, kind: str, said: str
) -> None:
    answer = ask(served, method, path, **params)
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
def test_times(served: Served, text: str, seconds: float) -> None:
    assert ask(served, "GET", "query", query="1", time=text).json()["data"]["result"][0] == seconds


@pytest.mark.parametrize("step", ["30", "30.0", "30s", "0h0m30s", "30000ms"])
def test_steps(served: Served, step: str) -> None:
    answer = ask(served, "GET", "query_range", query="1", start=0, end=60, step=step).json()
    assert [point[0] for point in answer["data"]["result"][0]["values"]] == [0, 30, 60]


def test_forms_of_any_kind(served: Served) -> None:
    """As Prometheus reads them: the media type in any case, and in parts as `curl -F` sends them."""
    wanted = ask(served, "POST", "query", query="1 + 1", time=1).json()
    kind = {"Content-Type": "Application/X-WWW-Form-Urlencoded; Charset=UTF-8"}
    answer = served.client.post("/api/v1/query", content="query=1+%2B+1&time=1", headers=kind)
    assert answer.json() == wanted
    parts = {"query": (None, "1 + 1"), "time": (None, "1")}
    assert served.client.post("/api/v1/query", files=parts).json() == wanted
    parts = {"query": (None, 'count({job="é"}) or vector(3)'.encode()), "time": (None, "1")}
    assert served.client.post("/api/v1/query", files=parts).json()["data"]["result"][0]["value"][1] == "3"
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = served.client.post("/api/v1/query", content="no parts", headers=kind)
    assert answer.status_code == 400 and "form" in answer.json()["error"]


def test_lookback_limit_and_stats(served: Served) -> None:
    assert ask(served, "GET", "query", query="up", time=END_S, lookback_delta="0").json()["data"]["result"]
    late = END_S + 200
    assert len(ask(served, "GET", "query", query="up", time=late).json()["data"]["result"]) == 3
    short = ask(served, "GET", "query", query="up", time=late, lookback_delta="1m").json()
    assert short["data"]["result"] == []
    limited = ask(served, "GET", "query", query="up", time=START_S, limit=2).json()
    assert len(limited["data"]["result"]) == 2
    assert limited["warnings"] == ["results truncated due to limit"]
    stats = ask(served, "GET", "query", query="up", time=START_S, stats="all", nocache=1).json()["data"]["stats"]
    assert stats["samples"]["totalQueryableSamples"] > 0
    explain = ask(served, "GET", "query", query="up", time=START_S, explain=1, nocache=1).json()["explain"]
    assert (explain["segmentsRead"], explain["cache"]) == (1, "bypass")
    (selector,) = explain["selectors"]
    assert (selector["selector"], selector["segments"]) == (["__name__='up'"], 1)
    rules = ["by_tier", "by_signal", "by_time", "by_metric_name", "by_value"]
    assert [rule["rule"] for rule in selector["rules"]] == rules
    assert sum(explain["pushDown"]["stepsByWorker"].values()) == 1
    assert selector["tiers"] == []
    assert selector["tierReasons"][0].startswith("raw samples from ")
    off = ask(served, "GET", "query", query="up", time=START_S, explain=1, nocache=1, max_tier="off").json()["explain"]
    assert off["selectors"][0]["tierReasons"][0].endswith(": tiers are switched off")
    refused = ask(served, "GET", "query", query="up", time=START_S, max_tier="often")
    assert (refused.status_code, "max_tier" in refused.json()["error"]) == (400, True)


def test_compression(served: Served) -> None:
    params = {"query": "up", "start": START_S, "end": END_S, "step": 15}
    with served.client.stream(
        "GET", "/api/v1/query_range", params=params, headers={"Accept-Encoding": "identity"}
    ) as plain:
        body = b"".join(plain.iter_raw())
        assert "content-encoding" not in plain.headers
    for encoding, unpack in (
        ("gzip", gzip.decompress),
        ("zstd", zstandard.ZstdDecompressor().decompress),
    ):
        with served.client.stream(
            "GET", "/api/v1/query_range", params=params, headers={"Accept-Encoding": f"{encoding}, br;q=0"}
        ) as packed:
            raw = b"".join(packed.iter_raw())
            assert packed.headers["content-encoding"] == encoding
        assert len(raw) < len(body) / 5
        assert unpack(raw) == body


def test_answers_are_kept_while_the_segments_are_the_same(serve: Serve, lake: WorkerLake) -> None:
    auth = AuthOf(uuid.uuid4())
    write_filled(lake, auth.org_id)
    served = serve(auth)
    params = {"query": "sum(up)", "start": START_S, "end": END_S, "step": 60}

    def outcome(**headers: str) -> str:
        answer = served.client.get("/api/v1/query_range", params=params, headers=headers)
        assert answer.status_code == 200
        return answer.headers["x-lakerunner-cache"]

    assert outcome() == "miss"
    assert outcome() == "hit"
    assert outcome(**{"Cache-Control": "no-cache"}) == "bypass"
    params["query"] = "sum( up )"
    assert outcome() == "hit"
    write_filled(lake, auth.org_id, "other_")
    assert outcome() == "miss"


def test_an_answer_that_misses_something_says_so_and_is_not_kept(serve: Serve, lake: WorkerLake) -> None:
    served, _ = with_a_segment_gone(serve, lake)
    for _ in range(2):
        answer = ask(served, "GET", "query", query='{__name__=~".*up"}', time=START_S)
        assert {one["metric"]["__name__"] for one in answer.json()["data"]["result"]} == {"up"}
        (warning,) = answer.json()["warnings"]
        assert warning.startswith("1 of 2 segments could not be read and are missing from this answer: ")
        assert answer.headers["x-lakerunner-cache"] == "miss"


def test_counts_that_miss_a_segment_say_so(serve: Serve, lake: WorkerLake) -> None:
    served, gone = with_a_segment_gone(serve, lake)
    document = ask(served, "GET", "status/tsdb").json()
    assert document["data"]["headStats"]["numSeries"] == 7
    (warning,) = document["warnings"]
    assert warning.startswith("1 of 2 segments could not be read")
    assert str(gone.segment_id) in warning


def with_a_segment_gone(serve: Serve, lake: WorkerLake) -> tuple[Served, Segment]:
    """An API over an org of two segments, the objects of one of which are no longer in the bucket."""
    auth = AuthOf(uuid.uuid4())
    write_filled(lake, auth.org_id)
    gone = write_filled(lake, auth.org_id, "gone_")
    lake.store.delete(keys.segment_keys(gone))
    return serve(auth), gone


def test_promtool(served: Served) -> None:
    promtool = peer("promtool")

    def run(*args: str) -> str:
        done = subprocess.run([promtool, "query", *args], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    at = f"--time={START_S}"
    assert run("instant", served.url, 'up{job="job0"}', at) == f'up{{code="200", job="job0"}} => 1 @[{START_S}]\n'
    times = [f"--start={START_S}", f"--end={START_S + 15}"]
    assert f"1 @[{START_S + 15}]" in run("range", served.url, "up", *times, "--step=15s")
    assert run("series", served.url, "--match=latency", *times) == '{__name__="latency", job="job0"}\n'
    assert run("labels", served.url, "job", *times) == "job0\njob1\njob2\n"
    assert "Buckets: [(0.5,1]:1 (2,4]:2]" in run("instant", served.url, "latency", at)
