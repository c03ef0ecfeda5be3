"""Traces that no sender should send are answered, or refused by the name of the limit, and no worker dies of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from lakerunner.index.api_keys import Scope, create_key
from lakerunner.index.orgs import create_org
from lakerunner.model.ids import fresh_id
from tests.serve.served import TwoOrgs, serving
from tests.serve.strange_traces import (
    BACKWARDS,
    CIRCLE,
    ITSELF,
    LONG,
    ORPHANS,
    SHORT,
    STRANGE,
    TWICE,
    ingest_spans,
    strange_spans,
    write_large,
)

CHILDREN, MILLION = "c" * 32, "d" * 32
START_NS = time.time_ns() - 600 * 10**9
Get = Callable[..., httpx.Response]


@pytest.fixture
def get(two_orgs: TwoOrgs) -> Any:
    # The lake outlives a test: the same spans come again with each of them, and must not be seen twice.
    ingest_spans(two_orgs.lake, two_orgs.ours, strange_spans(START_NS))
    with serving(two_orgs.lake) as serve:
        url = serve(two_orgs.auth).url

        def ask(path: str, secret: str = two_orgs.secrets["ours"], **params: object) -> httpx.Response:
            headers = {"Authorization": f"Bearer {secret}"}
            return httpx.get(url + path, params=params, headers=headers, timeout=60)  # type: ignore[arg-type]

        yield ask


def spans_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    resources = answer.json()["trace"]["resourceSpans"]
    return [span for resource in resources for scope in resource["scopeSpans"] for span in scope["spans"]]


def found(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {trace["traceID"].rjust(32, "0") for trace in answer.json()["traces"]}


def test_strange_traces_are_answered(get: Get) -> None:
    for trace_id, count in ((CIRCLE, 3), (ITSELF, 2), (TWICE, 4), (BACKWARDS, 2), (ORPHANS, 3), (SHORT, 2)):
        assert len(spans_of(get(f"/api/v2/traces/{trace_id}"))) == count, trace_id
        drawn = get(f"/api/v1/traces/{trace_id}")
        assert drawn.status_code == 200, drawn.text
    # Zeros before a short id may be left out; no id has forty digits.
    assert len(spans_of(get(f"/api/v2/traces/{SHORT.lstrip('0')}"))) == 2
    assert get(f"/api/traces/{LONG}").status_code == 400
    everything = found(get("/api/search", q="{ }", limit=100))
    assert everything == {CIRCLE, ITSELF, TWICE, BACKWARDS, ORPHANS, SHORT, LONG}


def test_strange_traces_are_searched(get: Get) -> None:
    for relation in (">", ">>", "<", "<<", "~", "!>", "!>>", "!<", "!<<", "!~", "&>", "&>>", "&<", "&<<", "&~"):
        assert get("/api/search", q=f"{{ }} {relation} {{ }}", limit=100).status_code == 200, relation
    assert CIRCLE in found(get("/api/search", q="{ } >> { span.place = 1 }", limit=100))
    assert {BACKWARDS} == found(get("/api/search", q="{ duration < 0 }"))
    assert found(get("/api/search", q="{ span:childCount > 0 } | count() > 0", limit=100)) >= {CIRCLE, ITSELF, TWICE}
    for query in (
        "{ } | rate() by (nestedSetLeft)",
        "{ } | quantile_over_time(duration, .5)",
        "{ } >> { } | count_over_time() by (span:parentID)",
        "{ } | compare({ status = error })",
    ):
        answer = get("/api/metrics/query_range", q=query, step="60s", since="1h")
        assert answer.status_code == 200, answer.text
    values = get("/api/v2/search/tag/span.strange/values").json()["tagValues"]
    assert {each["value"] for each in values} == set(STRANGE)


def test_times_that_no_row_can_have_are_refused(get: Get) -> None:
    metric, ended = "{ } | quantile_over_time(duration, .5)", "3635-01-24T03:36:17.745944Z"
    for start in ("60000000000", "3000-01-01T00:00:00Z", ended):
        for query in ("{ }", metric):
            answer = get("/api/search", q=query, start=start, end=ended)
            assert answer.status_code == 400 and "start must be before end" in answer.text, (start, answer.text)
    long = get("/api/search", q="{ }", start="0", end=ended)
    assert long.status_code == 422 and "api.max_range_s" in long.text


@pytest.mark.slow
def test_very_large_traces_are_limited_by_name(get: Get, two_orgs: TwoOrgs) -> None:
    start_ns = time.time_ns() - 300 * 10**9
    # An org of their own, so that no other test has to search them.
    with two_orgs.lake.database.transaction() as tx:
        org_id = create_org(tx, f"large-{fresh_id()}").org_id
        secret = create_key(tx, "large", [Scope.QUERY], [org_id]).secret
    write_large(two_orgs.lake, org_id, CHILDREN, 100_000, start_ns, chain=False)
    write_large(two_orgs.lake, org_id, MILLION, 1_000_000, start_ns, chain=True)
    refused = get(f"/api/traces/{MILLION}", secret)
    assert refused.status_code == 422 and "more than 100,000 spans" in refused.text, refused.text
    deep = get("/api/search", secret, q="{ nestedSetLeft = 1 } >> { duration = 999999ns }")
    assert found(deep) == {MILLION}
    wide = get("/api/search", secret, q="{ span:childCount = 99999 }")
    assert found(wide) == {CHILDREN}
    rate = get("/api/metrics/query", secret, q='{ resource.service.name = "large" } | count_over_time()', since="1h")
    assert rate.status_code == 200 and rate.json()["series"][0]["value"] == 1_100_000
    assert len(spans_of(get(f"/api/v2/traces/{CIRCLE}"))) == 3
