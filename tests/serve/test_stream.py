"""The stream: frames in order, ids to go on from, heartbeats, limits, and never a buffer on the way."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.memory_source import MemorySource
from tests.query.worker_lake import WorkerLake
from tests.serve.served import END_S, START_S, STEP_S, AuthOf, Serve, Served, serving, write_filled

PATH = "/api/v1/metrics/query"
BODY = {"q": "sum by (job) (rate(requests_total[1m]))", "s": START_S * 1000, "e": END_S * 1000, "step": "15s"}
TIMES_MS = (START_S + STEP_S * np.arange(240)) * 1000


def frames(answer: httpx.Response) -> Iterator[tuple[str, str, Any]]:
    """Id (the last one seen), type and data of each frame."""
    last_id = ""
    for line in answer.iter_lines():
        if line.startswith("id: "):
            last_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            document = json.loads(line.removeprefix("data: "))
            assert set(document) == {"type", "data"}
            yield last_id, document["type"], document["data"]


def stream(served: Served, body: dict[str, Any], **headers: str) -> list[tuple[str, str, Any]]:
    with served.client.stream("POST", PATH, json=body, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        return list(frames(answer))


def test_frames(serve: Serve) -> None:
    served = serve()
    with served.client.stream("POST", PATH, json=BODY, headers={"Accept-Encoding": "gzip, zstd"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in answer.headers
        assert answer.headers["x-accel-buffering"] == "no"
        told = list(frames(answer))
    kinds = [kind for _, kind, _ in told]
    assert kinds[-2:] == ["summary", "done"]
    assert set(kinds) == {"result", "progress", "summary", "done"}
    results = [data for _, kind, data in told if kind == "result"]
    assert results[0] == {
        "tags": {"job": "job0"},
        "label": '{job="job0"}',
        "value": pytest.approx(1 / 60),
        "timestamp": (START_S + STEP_S) * 1000,
    }
    assert results == sorted(results, key=lambda each: (each["timestamp"], each["label"]))
    progress = [data for _, kind, data in told if kind == "progress"]
    assert [each["group"] for each in progress] == list(range(1, progress[0]["groups"] + 1))
    assert progress[0]["groups"] > 3
    assert kinds.index("progress") < len(results) / 2, "the first group comes before the last is computed"
    summary = told[-2][2]
    assert summary["results"] == len(results)
    assert summary["cache"] == "miss"
    assert summary["segmentsRead"] == len(progress)
    assert summary["rows"] > 0
    assert summary["bytes"] > 0
    assert summary["tiersSeconds"] == [0]


def test_the_stream_tells_what_the_other_api_tells(served: Served) -> None:
    results = [data for _, kind, data in stream(served, {**BODY, "nocache": True}) if kind == "result"]
    matrix = served.client.get(
        "/api/v1/query_range", params={"query": BODY["q"], "start": START_S, "end": END_S, "step": STEP_S}
    ).json()["data"]["result"]
    flat = {(series["metric"]["job"], time * 1000): value for series in matrix for time, value in series["values"]}
    assert {(each["tags"]["job"], each["timestamp"]): str(each["value"]) for each in results} == {
        key: str(float(value)) for key, value in flat.items()
    }


def test_kept_answers_stream_too(serve: Serve) -> None:
    served = serve()
    first, second = stream(served, BODY), stream(served, BODY)
    assert [told[2]["cache"] for told in (first[-2], second[-2])] == ["miss", "hit"]
    results = [[each for each in told if each[1] == "result"] for told in (first, second)]
    assert results[0] == results[1]
    params = {"query": BODY["q"], "start": START_S, "end": END_S, "step": STEP_S}
    assert served.client.get("/api/v1/query_range", params=params).headers["x-lakerunner-cache"] == "hit"


@pytest.mark.parametrize("nocache", [True, False])
@pytest.mark.parametrize("q", [BODY["q"], "limitk(2, up)", "latency", "up @ end()"])
def test_a_stream_goes_on_where_it_broke(served: Served, q: str, nocache: bool) -> None:
    body = {**BODY, "q": q, "nocache": nocache}
    whole = [each for each in stream(served, body) if each[1] == "result"]
    for place in (0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 2, len(whole) - 1):
        # The times of the body do not count any more: `now` is later when the client comes back.
        rest = stream(served, {"q": q, "nocache": nocache}, **{"Last-Event-ID": whole[place][0]})
        assert [each for each in rest if each[1] == "result"] == whole[place + 1 :]
        assert rest[-1][1:] == ("done", {"status": "ok"})


def test_a_resumed_stream_reads_the_same_segments(lake: WorkerLake) -> None:
    """A segment that arrives in between has a series that comes first: every position after it is another result."""
    auth = AuthOf(uuid.uuid4())
    write_filled(lake, auth.org_id)
    with serving(lake) as serve:
        served, other = serve(auth), serve(auth)
        whole = [each for each in stream(served, BODY) if each[1] == "result"]
        last = {"Last-Event-ID": whole[10][0]}
        resumed = [stream(each, BODY, **last) for each in (served, other)]
        assert [[each for each in rest if each[1] == "result"] for rest in resumed] == [whole[11:]] * 2
        source = MemorySource()
        source.add(LabelSet.of({"__name__": "requests_total", "job": "a"}), TIMES_MS, np.arange(240.0))
        lake.commit(auth.org_id, [lake.put(auth.org_id, list(source._series.values()))])
        assert len([each for each in stream(served, BODY) if each[1] == "result"]) > len(whole)
        rest = stream(served, BODY, **last)
        assert [each for each in rest if each[1] == "result"] == whole[11:]
        assert rest[-1][2] == {"status": "ok"}
        # The other server never saw the stream's segments alone.
        [(_, kind, error), (_, _, done)] = stream(other, BODY, **last)
        assert (kind, error["code"], done["status"]) == ("error", "conflict", "error")
        assert "start again" in error["hint"]


def test_a_stream_over_unknown_segments_cannot_be_resumed(served: Served) -> None:
    last_id = f"{START_S * 1000}_{END_S * 1000}_{STEP_S * 1000}_none_{START_S * 1000}_0"
    assert stream(served, BODY, **{"Last-Event-ID": last_id})[0][2]["code"] == "conflict"


def test_a_stream_that_broke_at_its_end_has_no_more_to_tell(served: Served) -> None:
    summary_id = next(each[0] for each in stream(served, BODY) if each[1] == "summary")
    assert [each[1] for each in stream(served, BODY, **{"Last-Event-ID": summary_id})] == ["done"]


def test_by_get_as_browsers_do(served: Served) -> None:
    with served.client.stream("GET", PATH, params={**BODY, "summary": "0"}) as answer:
        kinds = [kind for _, kind, _ in frames(answer)]
    assert kinds[-1] == "done"
    assert "summary" not in kinds


def test_relative_times_and_a_step_that_fits(served: Served) -> None:
    summary = stream(served, {"q": "1", "e": END_S * 1000, "s": "e-30m"})[-2][2]
    aligned_s = (END_S - 1800) // 10 * 10
    assert (summary["startMs"], summary["endMs"], summary["stepMs"]) == (aligned_s * 1000, END_S * 1000, 10_000)
    summary = stream(served, {"q": "1"})[-2][2]
    assert 3_600_000 <= summary["endMs"] - summary["startMs"] < 3_600_000 + summary["stepMs"]
    assert summary["startMs"] % summary["stepMs"] == 0
    assert abs(summary["endMs"] / 1000 - time.time()) < 60


def test_limit_warnings_special_values_and_histograms(served: Served) -> None:
    told = stream(served, {**BODY, "limit": 5})
    assert [each[1] for each in told].count("result") == 5
    assert told[-2][2]["truncated"]
    told = stream(served, {**BODY, "q": "rate(up[1m])"})
    assert any("might not be a counter" in text for each in told if each[1] == "warnings" for text in each[2]["infos"])
    assert stream(served, {**BODY, "q": "vector(0) / 0"})[0][2]["value"] == "NaN"
    assert stream(served, {**BODY, "q": "latency"})[0][2]["histogram"]["count"] == "3"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "q"),
        ({"q": "sum("}, "1:5"),
        ({"q": "1", "s": "e+1h"}, None),
        ({"q": "1", "s": 2, "e": 1}, "e"),
        ({"q": "1", "step": "0s"}, "step"),
        ({"q": "1", "step": []}, "step"),
        ({"q": "1", "limit": "x"}, "limit"),
        ({"q": "1", "reverse": True}, None),
        ({"q": "1", "qq": 1}, None),
        ([], None),
    ],
)
def test_what_is_wrong_with_a_request_is_a_status(served: Served, body: Any, where: str | None) -> None:
    answer = served.client.post(PATH, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "bad_input"
    if where:
        assert answer.json()["error"]["where"] == where


@pytest.mark.parametrize("last_id", ["x", "1_2_0_none_1_0", "1_2_3_none_2_0", "9_2_3_none_9_0", "1_2_3_1_0"])
def test_an_id_that_is_not_ours(served: Served, last_id: str) -> None:
    answer = served.client.post(PATH, json=BODY, headers={"Last-Event-ID": last_id})
    assert answer.status_code == 400
    assert answer.json()["error"]["where"] == "Last-Event-ID"


def test_heartbeats_and_an_error_on_the_way(serve: Serve) -> None:
    served = serve(heartbeat_s=0.2, timeout_s=1.0)
    served.workers.delay_s = 10.0
    told = stream(served, BODY)
    kinds = [kind for _, kind, _ in told]
    assert kinds.count("heartbeat") >= 2
    assert kinds[-2:] == ["error", "done"]
    assert told[-2][2]["code"] == "timeout"
    assert "api.timeout_s" in told[-2][2]["message"]
    assert told[-1][2] == {"status": "error"}


def test_a_client_that_goes_stops_the_work(serve: Serve) -> None:
    served = serve()
    # Long enough for the last groups to be under way still when the first one arrives, on a busy machine too.
    served.workers.delay_s = 0.5
    with served.client.stream("POST", PATH, json=BODY) as answer:
        # Held by a name: a generator that is let go closes the connection at once.
        pieces = answer.iter_raw()
        next(pieces)
        assert len(served.api.admission.running.visible_to(_admin())) == 1
    end = time.monotonic() + 2
    while served.api.admission.running.visible_to(_admin()) and time.monotonic() < end:
        time.sleep(0.02)
    assert served.api.admission.running.visible_to(_admin()) == []
    requests = served.workers.requests
    time.sleep(1.2)
    assert served.workers.requests <= requests + 2


def _admin() -> Any:
    from lakerunner.index.orgs import DEFAULT_ORG_ID
    from lakerunner.serve.caller import Caller

    return Caller(DEFAULT_ORG_ID, "test")
