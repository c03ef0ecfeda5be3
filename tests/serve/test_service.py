"""What the service does once and only once, and what it must never pass on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from lakerunner.index.ledger import record_seen
from lakerunner.model.raw_object import RawObject
from lakerunner.query.fanout.protocol import EvaluateRequest, read_document, read_request
from lakerunner.query.promql import language
from lakerunner.query.promql.language import PromQl
from tests.query.worker_lake import WorkerLake
from tests.serve.served import END_S, START_S, AuthOf, Serve, Served, TwoOrgs, write_filled

#: Spelled as nobody prints it, so that it can be found wherever it goes.
ODD_TEXT = "sum   by(job)(\n\trate( requests_total [ 1m ] )  ) # an odd remark"


def ask_range(served: Served, text: str) -> None:
    params = {"query": text, "start": START_S, "end": END_S, "step": 15}
    answer = served.client.post("/api/v1/query_range", data=params)
    assert len(answer.json()["data"]["result"]) == 3, answer.text


def ask_stream(served: Served, text: str) -> None:
    body = {"q": text, "s": START_S * 1000, "e": END_S * 1000, "step": "15s"}
    answer = served.client.post("/api/v1/metrics/query", json=body)
    assert '"status":"ok"' in answer.text, answer.text[-500:]


ASKED = pytest.mark.parametrize("ask", [ask_range, ask_stream])


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """The calls of a function from now on: API and worker are in this process, so that both are counted."""
    calls: list[Any] = []
    call = getattr(owner, name)

    def counting(*args: Any) -> Any:
        calls.append(args)
        return call(*args)

    monkeypatch.setattr(owner, name, counting)
    return calls


@ASKED
def test_a_query_is_compiled_once(
    serve: Serve, lake: WorkerLake, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Served, str], None]
) -> None:
    served = serve()
    # The parser remembers texts: this one is new, and longer than those that it remembers.
    text = f"{ODD_TEXT} {uuid.uuid4()} {'x' * 5_000}"
    compiled, parsed = counted(monkeypatch, PromQl, "compile"), counted(monkeypatch, language, "parse")
    evaluated = counted(monkeypatch, PromQl, "evaluate")
    before = len(lake.worker.tickets)
    ask(served, text)
    assert [args[1] for args in compiled] == [text]
    assert [args[0] for args in parsed] == [text]
    assert len(evaluated) == len(lake.worker.tickets) - before > 0, "a worker evaluates what was compiled here"


@ASKED
def test_no_query_text_reaches_a_worker(serve: Serve, lake: WorkerLake, ask: Callable[[Served, str], None]) -> None:
    served = serve()
    before = len(lake.worker.tickets)
    ask(served, ODD_TEXT)
    tickets = lake.worker.tickets[before:]
    assert tickets
    for ticket in tickets:
        request = read_request(read_document(ticket))
        assert isinstance(request, EvaluateRequest)
        for content in (ticket, request.fragment.payload):
            assert b"requests_total" in content, "what the query means is there"
            assert b"an odd remark" not in content
            assert b"sum   by" not in content
            assert b"by(job)" not in content
            assert b"[ 1m ]" not in content


def test_answers_are_cached_by_org_and_language(serve: Serve, two_orgs: TwoOrgs) -> None:
    served = serve(two_orgs.auth)
    params = {"query": 'count({__name__=~".+_up"})', "start": START_S, "end": END_S, "step": 60}

    def cache_outcome(who: str) -> str:
        headers = {"Authorization": f"Bearer {two_orgs.secrets[who]}"}
        answer = served.client.get("/api/v1/query_range", params=params, headers=headers)
        assert answer.json()["data"]["result"][0]["values"][0][1] == "3"
        return answer.headers["x-lakerunner-cache"]

    assert [cache_outcome(who) for who in ("ours", "theirs", "ours", "theirs")] == ["miss", "miss", "hit", "hit"]
    found = list(served.api.service._cache._entries)
    assert [(key.org_id, key.language) for key in found] == [(two_orgs.ours, "promql"), (two_orgs.theirs, "promql")]
    assert len({key.text for key in found}) == 1


def test_another_spelling_is_the_same_question(serve: Serve, lake: WorkerLake) -> None:
    auth = AuthOf(uuid.uuid4())
    write_filled(lake, auth.org_id)
    served = serve(auth)
    ask_range(served, ODD_TEXT)
    ask_range(served, "sum by (job) (rate(requests_total[1m]))")
    (key,) = served.api.service._cache._entries
    assert key.text == "sum by (job) (rate(requests_total[1m]))"


def test_a_cached_answer_has_the_watermark_of_now(serve: Serve, lake: WorkerLake) -> None:
    auth = AuthOf(uuid.uuid4())
    write_filled(lake, auth.org_id)
    served = serve(auth)
    body = {"q": "sum(up)", "s": START_S * 1000, "e": END_S * 1000, "step": "60s"}

    def summary() -> tuple[str, int | None]:
        text = served.client.post("/api/v1/metrics/query", json=body).text
        frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        (found,) = [frame["data"] for frame in frames if frame["type"] == "summary"]
        return found["cache"], found["watermarkMs"]

    assert summary() == ("miss", None)
    waiting = RawObject(auth.org_id, "edge", "metrics", "s3://raw", "a", "v", 10, arrived_ns=END_S * 10**9)
    with lake.database.transaction() as tx:
        record_seen(tx, [waiting])
    assert summary() == ("hit", END_S * 1000)
