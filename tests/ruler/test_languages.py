"""Recording and alerting rules in LogQL and TraceQL, from Loki's rule file to the webhook; and materialized."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakerunner.index.leases import acquire
from lakerunner.index.orgs import create_org
from lakerunner.model.errors import LakeError
from lakerunner.model.signals import TRACES
from lakerunner.pipeline.rule_changes import apply_groups
from lakerunner.query.lake import open_lake
from lakerunner.ruler.group import RunningGroup
from lakerunner.ruler.role import Ruler
from lakerunner.ruler.shards import SHARDS
from lakerunner.rules.file import read_rules
from lakerunner.rules.reads import reads_of
from lakerunner.runtime.settings import RulerSettings
from tests.pipeline.compact.small_lake import ingest as ingest_objects
from tests.pipeline.derive.test_rules_in_lake import NOW_S, ingest, logs
from tests.pipeline.derive.test_service_graph import batch_of, spans_of
from tests.pipeline.lake import ORG, Lake, settings_of
from tests.ruler.lake_of_rules import Posted
from tests.serve.served import AuthOf, Served, serving_lakes

#: As Loki's ruler takes it: no `language`.
_LOKI = """
name: lines
interval: 1m
query_offset: 0s
rules:
  - record: errors:count5m
    expr: sum by (region) (count_over_time({service_name="shop"} |= "error" [5m]))
  - alert: ManyErrors
    expr: sum by (region) (count_over_time({service_name="shop"} |= "error" [5m])) > 1
    annotations: {summary: '{{ $labels.region }} has {{ $value }} errors'}
"""
_SPANS = """
name: spans
language: traceql
interval: 1m
query_offset: 0s
rules:
  - record: spans:failed
    expr: '{ status = error } | count_over_time() by (resource.service.name)'
  - alert: FailedSpans
    expr: '{ status = error } | count_over_time()'
"""
_RULES = """
groups:
  - name: shop
    rules:
      - materialize: errors_total
        signal: logs
        match: '{service_name="shop"} |= "error"'
        dimensions: [region]
"""


@pytest.fixture
def org_lake(database_url: str, tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(settings_of(database_url, tmp_path))
    with lake.database.transaction() as tx:
        create_org(tx, "acme", ORG)
    yield lake
    lake.close()


@pytest.fixture
def served(org_lake: Lake) -> Iterator[Served]:
    opened = open_lake(org_lake.settings, org_lake.database)
    try:
        with serving_lakes() as serve:
            yield serve(opened, AuthOf(ORG))
    finally:
        opened.close()


class Running:
    """A ruler over the lake that holds every shard, and what its webhook got."""

    def __init__(self, lake: Lake, **settings: Any) -> None:
        given = {"arrival_s": 0, "webhooks": "http://hook", "continuous": "off", **settings}
        self.ruler = Ruler(lake.settings.model_copy(update={"ruler": RulerSettings.model_validate(given)}))
        self.posted = Posted()
        for receiver in self.ruler.notifier.receivers:
            receiver.post = self.posted

    def look(self, at_s: float) -> None:
        leases = {n: acquire(self.ruler.database, f"ruler/{n}", "test", 600) for n in range(SHARDS)}
        for _ in range(20):
            self.ruler.look({n: lease for n, lease in leases.items() if lease is not None}, round(at_s * 1000))
            running = [held.running for held in self.ruler._held.values() if held.running is not None]
            if not running:
                break
            for each in running:
                assert each.exception(timeout=60) is None
        for receiver in self.ruler.notifier.receivers:
            self.ruler.notifier.round(receiver, round(at_s * 1000))

    def groups(self) -> list[RunningGroup]:
        return self.ruler._groups()

    @property
    def heard(self) -> list[tuple[str, str, str]]:
        return [
            (alert["status"], alert["labels"]["alertname"], alert["annotations"].get("summary", ""))
            for _, body in self.posted.bodies
            for alert in body["alerts"]
        ]


def _asked(served: Served, query: str, at_s: float) -> dict[str, float]:
    answer = served.client.get("/api/v1/query", params={"query": query, "time": at_s, "nocache": 1})
    assert answer.status_code == 200, answer.text
    return {
        str({name: value for name, value in each["metric"].items() if name != "__name__"}): float(each["value"][1])
        for each in answer.json()["data"]["result"]
    }


def test_rules_in_logql_and_traceql_record_and_alert(org_lake: Lake, served: Served) -> None:
    lines = [(at, "error ms=3", "eu") for at in (1, 2, 3)] + [(4, "error", "us"), (5, "ok", "us")]
    ingest(org_lake, logs(lines))
    spans = spans_of(random.Random(3), 20, NOW_S * 10**9)
    ingest_objects(org_lake, org_lake.put(TRACES, batch_of(spans)))
    for text in (_LOKI, _SPANS):
        stored = served.client.post(
            "/loki/api/v1/rules/team", content=text, headers={"Content-Type": "application/yaml"}
        )
        assert stored.status_code == 202, stored.text
    running = Running(org_lake)
    try:
        # The last times of both groups, at whole ten seconds of their interval, see everything.
        running.look(NOW_S + 60)
        times = {group.group.name: group.evaluated_at_ms for group in running.groups()}
        assert all(at_ms is not None and at_ms % 10_000 == 0 for at_ms in times.values())
        assert ("firing", "ManyErrors", "eu has 3 errors") in running.heard
        assert ("firing", "FailedSpans", "") in running.heard and len(running.heard) == 2
        at_s = NOW_S + 60
        assert _asked(served, "errors:count5m", at_s) == {"{'region': 'eu'}": 3.0, "{'region': 'us'}": 1.0}
        recorded = _asked(served, "spans:failed", at_s)
        # A rule sees the spans of one interval.
        end_ns = (times["spans"] or 0) * 1_000_000
        failed = Counter(
            f"{{'service_name': '{service}'}}"
            for service, span in spans
            if span.status.code == 2 and end_ns - 60 * 10**9 < span.start_time_unix_nano <= end_ns
        )
        assert recorded == failed and failed
        assert len(_asked(served, 'ALERTS{alertstate="firing"}', at_s)) == 2
        running.look(NOW_S + 480)
        assert ("resolved", "ManyErrors", "eu has 3 errors") in running.heard
    finally:
        running.ruler.close()


def test_an_alert_in_logql_that_a_rule_answers_is_evaluated_when_its_samples_are_there(
    org_lake: Lake, served: Served
) -> None:
    apply_groups(org_lake.database, ORG, read_rules(_RULES), "test", max_rules=10)
    group = _LOKI.replace("interval: 1m", "interval: 10m").replace("  - record: errors:count5m\n", "").replace(
        '    expr: sum by (region) (count_over_time({service_name="shop"} |= "error" [5m]))\n', ""
    )  # fmt: skip
    assert served.client.post("/loki/api/v1/rules/team", content=group).status_code == 202
    running = Running(org_lake, continuous="derived", continuous_gap_s=1)
    try:
        now_s = time.time()
        running.look(now_s)
        assert running.heard == []
        offset_s = now_s - NOW_S - 15
        ingest(org_lake, logs([(offset_s, "error a", "eu"), (offset_s + 1, "error b", "eu")]))
        (held,) = running.ruler._held.values()
        held.evaluated_s = float("-inf")
        running.look(time.time() + 10)
        assert running.heard == [("firing", "ManyErrors", "eu has 2 errors")]
        assert held.group.evaluated_at_ms is not None and held.group.evaluated_at_ms % 10_000 == 0
    finally:
        running.ruler.close()


def test_what_no_loki_would_take_is_refused(org_lake: Lake, served: Served) -> None:
    bad = served.client.post("/loki/api/v1/rules/team", content=_LOKI.replace("[5m]))\n", "[5m])\n"))
    assert bad.status_code == 400 and "expr" in bad.text
    with pytest.raises(LakeError, match="no vector"):
        (group,) = read_rules("groups: [{name: g, language: logql, rules: [{record: r, expr: '{a=\"b\"}'}]}]")
        reads_of(group.rules[0])  # type: ignore[arg-type]
