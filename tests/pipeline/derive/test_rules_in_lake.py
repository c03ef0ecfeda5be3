"""Rules in a lake: what they stored equals what raw rows say, through late rows, compaction, changes and backfill."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence

import pytest

from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.rule_catalog import find_rule
from lakerunner.index.rule_coverage import coverage
from lakerunner.index.rule_holes import Hole, record_holes
from lakerunner.model.errors import BadInput, Conflict, LimitHit, Unavailable
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.backfill.request import announce, left, wanted_versions
from lakerunner.pipeline.backfill.stage import BACKFILL, BackfillRunner
from lakerunner.pipeline.backfill.task import run_task as run_backfill
from lakerunner.pipeline.compact.stage import COMPACT, CompactRunner
from lakerunner.pipeline.compact.task import run_task as run_compaction
from lakerunner.pipeline.ingest.stage import IngestRunner
from lakerunner.pipeline.ingest.task import run_task
from lakerunner.pipeline.items import load_items, make_item
from lakerunner.pipeline.rule_changes import Applied, apply_groups, renew_rule
from lakerunner.query.lake import open_lake
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.rules.explain import explain
from lakerunner.query.run import run
from lakerunner.query.series.times import QueryTimes
from lakerunner.rules.file import read_rules
from tests.pipeline.derive.test_service_graph import batch_of, spans_of
from tests.pipeline.lake import ORG, Lake, loaded

NOW_S = int(time.time()) // 600 * 600 - 600
ALWAYS = TimeRange(0, 1 << 62)
RULES = """
groups:
  - name: shop
    rules:
      - materialize: errors_total
        signal: logs
        match: '{service_name="shop"} |= "error"'
        dimensions: [service_name, region]
      - materialize: ms
        signal: logs
        match: '{service_name="shop"} | logfmt | __error__=""'
        compute: histogram(ms)
      - materialize: ms_max
        signal: logs
        match: '{service_name="shop"} | logfmt | __error__=""'
        compute: max(ms)
      - materialize: failed_spans_total
        signal: traces
        match: '{ status = error }'
        dimensions: [resource.service.name]
"""


def applied(lake: Lake, text: str = RULES, max_rules: int = 100, org: uuid.UUID = ORG) -> Applied:
    return apply_groups(lake.database, org, read_rules(text), "tests", max_rules=max_rules)


def logs(lines: Sequence[tuple[float, str, str]]) -> bytes:
    """Lines of the service `shop`: seconds after NOW_S, message and region."""
    rows = [
        {"timestamp": int((NOW_S + at_s) * 1e9), "service": "shop", "message": message, "region": region}
        for at_s, message, region in lines
    ]
    return "\n".join(json.dumps(row) for row in rows).encode()


def ingest(lake: Lake, body: bytes, signal=LOGS, name: str = "") -> None:
    name = name or f"{uuid.uuid4().hex}{'.json' if signal is LOGS else '.binpb'}"
    item = loaded(lake, lake.put(signal, body, name))
    runner = IngestRunner(lake.settings, lake.database, lambda tasks: [run_task(task) for task in tasks])
    [attempt] = runner.run([item], {item.item_id: 1})
    assert isinstance(attempt.result, ItemResult), attempt.result
    assert commit_item(lake.database, attempt.result) is Outcome.COMMITTED


def compact(lake: Lake, signal=LOGS, deduplicate: str = "") -> None:
    pipeline = lake.settings.pipeline.model_copy(update={"compact_deduplicate": deduplicate})
    settings = lake.settings.model_copy(update={"pipeline": pipeline})
    segments = lake.segments(signal)
    by_version: dict[int, list[Segment]] = {}
    for each in segments:
        by_version.setdefault(each.rules_version, []).append(each)
    for some in by_version.values():
        if len(some) > 1:
            made = make_item(lake.database, COMPACT, some)
            with lake.database.transaction() as tx:
                items, _ = load_items(tx, COMPACT, [made], lake.settings.pipeline)
            runner = CompactRunner(settings, lake.database, lambda tasks: [run_compaction(task) for task in tasks])
            [attempt] = runner.run([items[made]], {made: 1})
            assert isinstance(attempt.result, ItemResult), attempt.result
            assert commit_item(lake.database, attempt.result) is Outcome.COMMITTED


def backfill(lake: Lake, signal=LOGS) -> list[Outcome]:
    versions = wanted_versions(lake.database, ORG, None)
    assert announce(lake.database, ORG, versions, ALWAYS) == left(lake.database, ORG, versions, ALWAYS).segments
    made = make_item(lake.database, BACKFILL, lake.segments(signal))
    with lake.database.transaction() as tx:
        items, _ = load_items(tx, BACKFILL, [made], lake.settings.pipeline)
    runner = BackfillRunner(lake.settings, lake.database, lambda tasks: [run_backfill(task) for task in tasks])
    outcomes = []
    for attempt in runner.run(list(items.values()), {made: 1}):
        assert isinstance(attempt.result, ItemResult), attempt.result
        outcomes.append(commit_item(lake.database, attempt.result))
    return outcomes


def asked(lake: Lake, name: str, query: str) -> dict[str, float]:
    """The vector of an instant query at NOW_S + 600."""
    at_ms = (NOW_S + 600) * 1000
    opened = open_lake(lake.settings, lake.database)
    try:
        times = QueryTimes(at_ms, at_ms, 0)
        plan = language(name).compile(query, times, QueryOptions())
        value = run(plan, opened.query(ORG), lambda: None).value
        return {str(dict(labels)): float(each) for labels, each in zip(value.labels, value.values.ravel(), strict=True)}
    finally:
        opened.close()


def equal(lake: Lake, rule: str, match: str, by: str) -> float:
    """The rule's samples say what the raw rows say; returns the total."""
    raw = asked(lake, "logql", f"sum by ({by}) (count_over_time({match}[30m]))")
    derived = asked(lake, "promql", f"sum by ({by}) (sum_over_time({rule}[30m]))")
    assert derived == raw
    return sum(raw.values())


def gaps(lake: Lake, name: str, since_s: int = 3600) -> set[str]:
    with lake.database.transaction() as tx:
        found = coverage(tx, ORG, find_rule(tx, ORG, name), (NOW_S - since_s) * 10**9, (NOW_S + 3600) * 10**9)
    return {each.reason for each in found}


MATCH = '{service_name="shop"} |= "error"'
FIRST = [(1, "error ms=3", "eu"), (2, "ok ms=5", "eu"), (11, "error ms=8", "us"), (15, "error", "")]
LATE = [(2.5, "error ms=70", "eu"), (10, "error ms=9", "eu"), (400, "error late", "us")]


def test_samples_say_what_raw_rows_say(lake: Lake) -> None:
    assert applied(lake).added == ("errors_total", "ms", "ms_max", "failed_spans_total")
    ingest(lake, logs(FIRST))
    assert {each.rules_version for each in lake.segments(LOGS)} == {1}
    assert equal(lake, "errors_total", MATCH, "region") == 3
    # Late rows of the same buckets add to them.
    ingest(lake, logs(LATE))
    assert equal(lake, "errors_total", MATCH, "region") == 6
    assert asked(lake, "promql", "max_over_time(ms_max[30m])") == {"{}": 70.0}
    assert asked(lake, "promql", "histogram_count(sum_over_time(ms[30m]))") == {"{}": 5.0}
    [median] = asked(lake, "promql", "histogram_quantile(0.5, sum_over_time(ms[30m]))").values()
    assert median == pytest.approx(8.0, rel=0.1)
    # `increase` sees restarts, not a counter that falls; as for any counter with few samples, it extrapolates.
    assert 6 <= sum(asked(lake, "promql", "increase(errors_total[1800s])").values()) < 9
    assert gaps(lake, "errors_total") == set()
    compact(lake)
    compact(lake, METRICS)
    assert {each.rules_version for each in lake.segments(LOGS)} == {1}
    assert equal(lake, "errors_total", MATCH, "region") == 6
    assert gaps(lake, "errors_total") == set()


def test_rules_over_spans_are_committed_with_them(lake: Lake) -> None:
    import random

    applied(lake)
    spans = spans_of(random.Random(3), 20, NOW_S * 10**9)
    ingest(lake, batch_of(spans), TRACES)
    failed = sum(span.status.code == 2 for _, span in spans)
    assert sum(asked(lake, "promql", "sum_over_time(failed_spans_total[30m])").values()) == failed > 0
    assert gaps(lake, "failed_spans_total") == set()


def test_backfill_brings_old_segments_up_to_date_once(lake: Lake) -> None:
    ingest(lake, logs(FIRST))
    applied(lake)
    assert gaps(lake, "errors_total") == {"rows were ingested before the rule, or without it"}
    ingest(lake, logs(LATE))
    assert left(lake.database, ORG, wanted_versions(lake.database, ORG, "errors_total"), ALWAYS).segments == 1
    assert backfill(lake) == [Outcome.COMMITTED]
    assert equal(lake, "errors_total", MATCH, "region") == 6
    assert gaps(lake, "errors_total") == set()
    backfill(lake)
    assert equal(lake, "errors_total", MATCH, "region") == 6
    # What has the same version can be merged again.
    compact(lake)
    assert len(lake.segments(LOGS)) == 1


def test_a_changed_rule_forgets_what_its_earlier_version_stored(lake: Lake) -> None:
    applied(lake)
    ingest(lake, logs(FIRST))
    changed = RULES.replace('|= "error"', '|= "ok"')
    result = applied(lake, changed)
    assert (result.changed, len(result.unchanged), result.retired) == (("errors_total",), 3, ())
    assert asked(lake, "promql", "sum_over_time(errors_total[30m])") == {}
    assert asked(lake, "promql", "histogram_count(sum_over_time(ms[30m]))") != {}
    assert backfill(lake) == [Outcome.COMMITTED]
    assert equal(lake, "errors_total", '{service_name="shop"} |= "ok"', "region") == 1
    # Rules that saw the segment before are not evaluated again.
    assert asked(lake, "promql", "histogram_count(sum_over_time(ms[30m]))") == {"{}": 3.0}


def test_an_item_that_was_evaluated_before_a_change_is_done_again(lake: Lake) -> None:
    applied(lake)
    item = loaded(lake, lake.put(LOGS, logs(FIRST), "a.json"))
    runner = IngestRunner(lake.settings, lake.database, lambda tasks: [run_task(task) for task in tasks])
    [attempt] = runner.run([item], {item.item_id: 1})
    applied(lake, RULES.replace('|= "error"', '|= "ok"'))
    assert isinstance(attempt.result, ItemResult)
    with pytest.raises(Unavailable, match="errors_total: it was changed meanwhile"):
        commit_item(lake.database, attempt.result)
    [again] = runner.run([item], {item.item_id: 2})
    assert isinstance(again.result, ItemResult)
    assert commit_item(lake.database, again.result) is Outcome.COMMITTED
    assert equal(lake, "errors_total", '{service_name="shop"} |= "ok"', "region") == 1


def test_rows_that_compaction_removes_make_a_hole(lake: Lake) -> None:
    applied(lake)
    ingest(lake, logs(FIRST))
    ingest(lake, logs([*FIRST, (5, "error ms=1", "eu")]))
    assert equal(lake, "errors_total", MATCH, "region") == 7
    compact(lake, deduplicate=f"{ORG}/logs")
    assert sum(asked(lake, "logql", f"count_over_time({MATCH}[30m])").values()) == 4
    assert gaps(lake, "errors_total") == {"compaction found rows that were stored twice"}


def test_lines_that_stages_fail_on_make_a_hole_of_their_rule_alone(lake: Lake) -> None:
    applied(lake, RULES.replace(' | __error__=""', ""))
    ingest(lake, logs([(1, "error ms=abc", "eu")]))
    assert gaps(lake, "ms") == {"its stages failed on some rows"}
    assert gaps(lake, "errors_total") == set()


def test_what_cannot_be_applied_changes_nothing(lake: Lake) -> None:
    with pytest.raises(LimitHit, match=r"more than 3 \(derive.max_rules\)"):
        applied(lake, max_rules=3)
    applied(lake)
    with pytest.raises(Exception, match="the group 'shop' has a rule of this name"):
        applied(lake, RULES.replace("name: shop", "name: other"))
    other = uuid.UUID(int=8)
    assert len(applied(lake, org=other).added) == 4
    assert applied(lake, "groups: [{name: shop}]").retired == ("errors_total", "failed_spans_total", "ms", "ms_max")
    ingest(lake, logs(FIRST))
    assert not lake.segments(METRICS)


def test_the_name_of_a_metric_in_the_lake_is_refused(lake: Lake) -> None:
    from tests.pipeline.lake import otlp

    ingest(lake, otlp(METRICS, 5), METRICS)
    name = lake.rows(METRICS).column("metric_name")[0].as_py()
    with pytest.raises(Conflict, match="the lake has a metric of this name"):
        applied(lake, RULES.replace("errors_total", name))


def test_a_rule_that_is_begun_anew_has_no_holes_once_it_is_backfilled(lake: Lake) -> None:
    applied(lake)
    ingest(lake, logs(FIRST))
    with lake.database.transaction() as tx:
        rule = find_rule(tx, ORG, "errors_total")
        record_holes(tx, ORG, [Hole("logs", rule.rule_id, NOW_S * 10**9, (NOW_S + 60) * 10**9, "it failed: x")])
    assert gaps(lake, "errors_total") == {"it failed: x"}
    assert renew_rule(lake.database, ORG, "errors_total", "me").version == rule.version + 1
    assert gaps(lake, "errors_total") == {"rows were ingested before the rule, or without it"}
    assert backfill(lake) == [Outcome.COMMITTED]
    assert not gaps(lake, "errors_total")
    assert equal(lake, "errors_total", MATCH, "region") == 3


LOADS = """
groups:
  - name: loads
    rules:
      - {materialize: loads, signal: metrics, match: 'load{code="500"}', dimensions: [route], compute: sum(value)}
      - {materialize: queues, signal: metrics, match: queue, compute: max(value)}
"""


def gauges(points: list[tuple[float, str, str, float]]) -> bytes:
    data = [
        {
            "timeUnixNano": str(int((NOW_S + at_s) * 10**9)),
            "asDouble": value,
            "attributes": [
                {"key": "route", "value": {"stringValue": route}},
                {"key": "code", "value": {"stringValue": code}},
            ],
        }
        for at_s, route, code, value in points
    ]
    metric = {"name": "load", "gauge": {"dataPoints": data}}
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()


def test_rules_over_metrics_are_committed_with_their_samples(lake: Lake) -> None:
    ingest(lake, gauges([(-5_000, "/a", "500", 7.0)]), METRICS)
    assert applied(lake, LOADS).added == ("loads", "queues")
    # Samples that came before the rule are no rows of it until they are backfilled; the other metric has none.
    assert gaps(lake, "loads", 9_000) == {"rows were ingested before the rule, or without it"}
    assert not gaps(lake, "queues", 9_000)
    ingest(lake, gauges([(100, "/a", "500", 1.5), (110, "/a", "500", 2.5), (110, "/b", "200", 9.0)]), METRICS)
    ingest(lake, gauges([(120, "/b", "500", 4.0)]), METRICS)
    assert not gaps(lake, "loads")
    raw = asked(lake, "promql", 'sum by (route) (sum_over_time(load{code="500"}[30m]))')
    assert raw == asked(lake, "promql", "sum by (route) (sum_over_time(loads[30m]))")
    assert sorted(raw.values()) == [4.0, 4.0]
    times = QueryTimes((NOW_S + 600) * 1000, (NOW_S + 600) * 1000, 0)
    asked_for = 'sum by (route) (sum_over_time(load{code="500"}[20m]))'
    [note, *_] = [
        each for each in explain(lake.database, ORG, "promql", f"2 * {asked_for}", times) if each.rule == "loads"
    ]
    assert (note.refusal, note.promql) == ("", "sum by (route) (sum_over_time(loads{}[1200000ms]))")
    ingest(lake, gauges([(200, "/a", "500", 1.0), (200, "/a", "500", 2.0)]), METRICS)
    assert gaps(lake, "loads") == {"samples were sent twice"}


def test_rules_over_metrics_are_backfilled(lake: Lake) -> None:
    early = [(100, "/a", "500", 1.5), (110, "/a", "500", 2.5), (110, "/b", "200", 9.0), (300, "/b", "500", 0.25)]
    ingest(lake, gauges(early), METRICS)
    other = gauges([(100, "/a", "500", 1.0)]).replace(b'"load"', b'"unrelated"')
    ingest(lake, other, METRICS)
    applied(lake, LOADS)
    ingest(lake, gauges([(410, "/a", "500", 8.0)]), METRICS)
    for rule in (None, "loads"):
        todo = left(lake.database, ORG, wanted_versions(lake.database, ORG, rule), ALWAYS)
        assert (todo.segments, todo.rows) == (1, 4), "what was evaluated while it came, or has another metric, is not"
    [late] = [each for each in lake.segments(METRICS) if "load" in each.pruning.values["metric_name"]][1:]
    assert backfill(lake, METRICS) == [Outcome.COMMITTED]
    assert not gaps(lake, "loads", 9_000)
    raw = asked(lake, "promql", 'sum by (route) (sum_over_time(load{code="500"}[30m]))')
    assert raw == asked(lake, "promql", "sum by (route) (sum_over_time(loads[30m]))")
    assert sorted(raw.values()) == [0.25, 12.0], late
    # Again: nothing is counted twice, also after the segments were merged.
    assert left(lake.database, ORG, wanted_versions(lake.database, ORG, None), ALWAYS).segments == 0
    backfill(lake, METRICS)
    compact(lake, METRICS)
    assert raw == asked(lake, "promql", "sum by (route) (sum_over_time(loads[30m]))")
    assert not gaps(lake, "loads", 9_000)


def test_rules_over_derived_metrics_are_not_backfilled(lake: Lake) -> None:
    ingest(lake, logs(FIRST))
    applied(lake)
    ingest(lake, logs(LATE))
    ingest(lake, gauges([(100, "/a", "500", 1.5)]), METRICS)
    chained = LOADS.replace("match: queue", "match: errors_total")
    applied(lake, chained)
    with pytest.raises(BadInput, match="errors_total, which Lakerunner derives"):
        wanted_versions(lake.database, ORG, "queues")
    wanted = wanted_versions(lake.database, ORG, None)["metrics"]
    assert (wanted.metrics, wanted.derived) == (("load",), ("errors_total",))
    assert left(lake.database, ORG, {"metrics": wanted}, ALWAYS).segments == 1
    backfill(lake, METRICS)
    # The rule has no samples, and does not claim to have seen those that it reads.
    assert gaps(lake, "queues") and not gaps(lake, "loads")


def test_a_metric_that_comes_later_under_the_name_of_a_rule_makes_a_hole(lake: Lake) -> None:
    applied(lake, LOADS.replace("loads,", "load_of_logs,").replace("queues,", "load,").replace("queue,", "other,"))
    ingest(lake, gauges([(100, "/a", "500", 1.0)]), METRICS)
    assert "a metric of this name was sent or recorded" in gaps(lake, "load")
    assert not gaps(lake, "load_of_logs")
