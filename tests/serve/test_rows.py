"""`/api/v1/rows/{signal}`: rows as an Arrow stream, whose last batch says how it went."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.ipc
import pytest

from lakerunner.serve.lake.arrow_stream import ARROW, SUMMARY
from lakerunner.store import keys
from tests.query.lake_of_logs import HOURS, ROWS, write_logs
from tests.query.worker_lake import WorkerLake
from tests.serve.served import AuthOf, Served, TwoOrgs, serving

ALL = {"s": 0, "e": HOURS * 3_600_000}


@pytest.fixture(scope="module")
def logs(lake: WorkerLake) -> Iterator[Served]:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    with serving(lake) as serve:
        yield serve(AuthOf(org_id))


def ask(served: Served, signal: str = "logs", **fields: Any) -> tuple[pa.Table, dict[str, Any]]:
    answer = served.client.post(f"/api/v1/rows/{signal}", json={**ALL, **fields})
    assert (answer.status_code, answer.headers["content-type"]) == (200, ARROW)
    reader = pa.ipc.open_stream(answer.content)
    batches, summary = [], None
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            break
        batches.append(batch)
        summary = None if metadata is None else orjson.loads(metadata[SUMMARY])
    assert summary is not None, "the last batch has the summary"
    return pa.Table.from_batches(batches), summary


def test_rows_and_their_summary(logs: Served) -> None:
    table, summary = ask(logs, where='service_name = "s1" and severity_number >= 17', limit=3, fields=["message"])
    assert table.column_names == ["timestamp", "message"]
    assert table.column("message").to_pylist() == [
        f"hour 5 half {half} number {n}" for n, half in ((25, 1), (25, 0), (5, 1))
    ]
    assert (summary["results"], summary["segmentsFailed"], summary["warnings"]) == (3, 0, [])
    assert summary["bytes"] > 0


def test_all_rows_oldest_first(logs: Served) -> None:
    table, summary = ask(logs, oldest_first=True)
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    assert len(times) == summary["results"] == HOURS * 2 * ROWS


def test_no_rows(logs: Served) -> None:
    table, summary = ask(logs, where='service_name = "nobody"', explain=True)
    assert (table.num_rows, summary["results"]) == (0, 0)
    assert [rule["rule"] for rule in summary["selectors"][0]["rules"]][-1] == "by_value"
    assert ask(logs, "traces")[0].num_rows == 0


@pytest.mark.parametrize(
    ("path", "fields", "status", "text"),
    [
        ("logs", {"where": "severity_number >"}, 400, "1:18"),
        ("logs", {"where": 'a = "b" c'}, 400, "cannot parse"),
        ("logs", {"were": "x"}, 400, "no field 'were'"),
        ("logs", {"limit": -1}, 400, "limit"),
        ("logs", {"fields": [1]}, 400, "no list of names"),
        ("logs", {"s": 2, "e": 1}, 400, "before the start"),
        ("metrics", {}, 400, "samples, not rows"),
        ("profiles", {}, 400, "profiles"),
        ("logs", {"s": 0, "e": 10**15}, 422, "api.max_range_s"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_said(
    logs: Served, path: str, fields: dict[str, Any], status: int, text: str
) -> None:
    answer = logs.client.post(f"/api/v1/rows/{path}", json={**ALL, **fields})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert text in f"{error['message']} {error['where']}"


def test_a_failure_on_the_way_is_the_last_batch(lake: WorkerLake) -> None:
    org_id = uuid.uuid4()
    for segment in write_logs(lake, org_id):
        lake.store.delete(keys.segment_keys(segment))
    with serving(lake) as serve:
        table, summary = ask(serve(AuthOf(org_id)), limit=5)
    assert table.num_rows == 0
    assert summary["error"]["code"] == "unavailable"


def test_a_query_for_rows_is_listed_and_can_be_cancelled(lake: WorkerLake, logs: Served) -> None:
    logs.workers.delay_s = 30.0
    try:
        with logs.client.stream("POST", "/api/v1/rows/logs", json={**ALL, "limit": 5}) as answer:
            (query,) = logs.client.get("/api/v1/queries").json()["queries"]
            assert query["kind"] == "rows"
            assert logs.client.delete(f"/api/v1/queries/{query['id']}").status_code == 200
            body = answer.read()
    finally:
        logs.workers.delay_s = 0.0
    assert b"cancelled" in body


def test_rows_of_another_org_stay_hidden(lake: WorkerLake, two_orgs: TwoOrgs) -> None:
    write_logs(lake, two_orgs.theirs)
    with serving(two_orgs.lake) as serve:
        served = serve(two_orgs.auth)
        headers = {"Authorization": f"Bearer {two_orgs.secrets['ours']}"}
        body = served.client.post("/api/v1/rows/logs", json=ALL, headers=headers).content
        assert b"hour" not in body
        assert served.client.post("/api/v1/rows/logs", json=ALL).status_code == 401
        stolen = {**headers, "X-Scope-OrgID": str(two_orgs.theirs)}
        assert served.client.post("/api/v1/rows/logs", json=ALL, headers=stolen).status_code == 401
