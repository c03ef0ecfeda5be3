"""Rules answer queries over HTTP: the same answers as without them, raw rows where a rule lacks some, and an alarm."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from lakerunner.index.rule_catalog import live_rules
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.pipeline.rule_changes import apply_groups
from lakerunner.query.lake import open_lake
from lakerunner.query.rules.spans import label_of
from lakerunner.query.rules.stored import rule_version
from lakerunner.rules.file import read_rules
from lakerunner.rules.matches import dimension_labels
from lakerunner.rules.stored import from_document
from tests.pipeline.compact.small_lake import compact_until_settled, ingest
from tests.pipeline.lake import ORG, Lake
from tests.query.rules.rewrites import records, spans
from tests.serve.served import AuthOf, Served, serving_lakes

RULES = """
groups:
  - name: shop
    rules:
      - materialize: lines_total
        signal: logs
        match: '{service_name=~".+"} |= "o"'
        dimensions: [service_name, route]
        compute: count
      - materialize: spans_total
        signal: traces
        match: '{ status = error }'
        dimensions: [resource.service.name, name]
        compute: count
"""
LOGQL = 'sum by (route) (count_over_time({service_name=~"api|cart"} |= "o" [1m]))'
TRACEQL = "{ status = error } | rate() by (resource.service.name)"
START_S = records.START_NS // 1_000_000_000


@pytest.fixture
def filled(lake: Lake) -> Lake:
    apply_groups(lake.database, ORG, read_rules(RULES), "test", max_rules=10)
    rng = random.Random(3)
    for _ in range(2):
        ingest(lake, *(lake.put(LOGS, request) for request in records.batch(rng, 200)))
    ingest(lake, *(lake.put(TRACES, request) for request in spans.batch(rng, 200)))
    return lake


@pytest.fixture
def served(filled: Lake) -> Iterator[Served]:
    opened = open_lake(filled.settings, filled.database)
    try:
        with serving_lakes() as serve:
            yield serve(opened, AuthOf(ORG), shadow_share=0.0)
    finally:
        opened.close()


def explained(served: Served, query: str, **fields: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """The values of a range query over logs, and what became of the rules."""
    body = {"q": query, "s": START_S * 1000, "e": (START_S + 240) * 1000, "step": "30s", "explain": True} | fields
    answer = served.client.post("/api/v1/logs/query", json=body | {"nocache": True})
    assert answer.status_code == 200, answer.text
    documents = [json.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:")]
    results = [each["data"] for each in documents if each["type"] == "result"]
    (summary,) = (each["data"] for each in documents if each["type"] == "summary")
    return results, summary.get("rewrites", [])


def loki(served: Served, query: str, **params: Any) -> Any:
    times = {"start": START_S, "end": START_S + 240, "step": 30, "nocache": 1}
    answer = served.client.get("/loki/api/v1/query_range", params={"query": query, **times, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]["result"]


def tempo(served: Served, query: str, **params: Any) -> Any:
    times = {"start": START_S, "end": START_S + 240, "step": "30s", "nocache": 1, "exemplars": 0}
    answer = served.client.get("/api/metrics/query_range", params={"q": query, **times, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()["series"]


def test_rules_answer_over_http(filled: Lake, served: Served) -> None:
    values, notes = explained(served, LOGQL)
    assert [note for note in notes if note["rewritten"]] == [
        {
            "part": LOGQL.replace(") (", ")(").replace(" [1m]", "[1m]"),
            "rule": "lines_total",
            "version": 1,
            "rewritten": True,
            "query": 'sum by (route) (sum_over_time(lines_total{service_name=~"api|cart"}[60000ms]))',
            "raw": [],
        }
    ]
    assert {note["reason"] for note in notes if not note["rewritten"]} == {
        "the rule reads traces, and the query reads logs"
    }
    raw, no_notes = explained(served, LOGQL, rewrite=False)
    assert values == raw
    assert values
    assert not no_notes
    assert loki(served, LOGQL) == loki(served, LOGQL, rewrite=0) != []
    assert tempo(served, TRACEQL) == tempo(served, TRACEQL, rewrite=0) != []
    with serving_lakes() as serve:
        _, notes = explained(serve(served.lake, AuthOf(ORG), rule_rewrites=0), LOGQL)
        assert not notes, "switched off for the org"
    _check_labels(filled)


def _check_labels(lake: Lake) -> None:
    """Queries know the labels that ingest gives."""
    with lake.database.transaction() as tx:
        rules = live_rules(tx, ORG)
    for stored in rules:
        found = rule_version(stored)
        assert found is not None
        defined = from_document(stored.name, stored.definition)
        assert [label for _, label in found.dimensions] == [label for _, label in dimension_labels(defined)]
    assert label_of('span."http.route"') == "http_route"


def test_rows_that_a_rule_lacks_are_read_raw(filled: Lake, served: Served) -> None:
    """Late rows that arrive while the rule is unknown, compaction, and backfill-less coverage: split, never short."""
    with filled.database.transaction() as tx:
        tx.execute("UPDATE segment SET rules_version = 0 WHERE org_id = %s AND signal = 'logs'", [ORG])
    _, notes = explained(served, LOGQL)
    reason = "rows were ingested before the rule, or without it"
    assert any(not note["rewritten"] and reason in note["reason"] for note in notes), notes
    late = records.batch(random.Random(9), 100, 200, 240)
    ingest(filled, *(filled.put(LOGS, request) for request in late))
    compact_until_settled(filled, LOGS)
    compact_until_settled(filled, METRICS)
    assert loki(served, LOGQL) == loki(served, LOGQL, rewrite=0) != []


def test_a_difference_retires_the_rule(filled: Lake) -> None:
    """The rule's samples are damaged: half of its series is gone."""
    derived = [each for each in filled.segments(METRICS) if "lines_total" in str(each.pruning)]
    assert derived
    with filled.database.transaction() as tx:
        tx.execute(
            "UPDATE segment SET state = 'superseded', superseded_at = now() WHERE segment_id = %s",
            [derived[0].segment_id],
        )
    opened = open_lake(filled.settings, filled.database)
    try:
        with serving_lakes() as serve:
            served = serve(opened, AuthOf(ORG), shadow_share=1.0)
            wrong = loki(served, LOGQL)
            deadline_s = time.monotonic() + 20
            while time.monotonic() < deadline_s and "lines_total" in _live(filled):
                time.sleep(0.05)
            assert "lines_total" not in _live(filled)
            right = loki(served, LOGQL)
            assert wrong != right == loki(served, LOGQL, rewrite=0)
    finally:
        opened.close()


def _live(lake: Lake, org_id: uuid.UUID = ORG) -> set[str]:
    with lake.database.transaction() as tx:
        return {rule.name for rule in live_rules(tx, org_id)}
