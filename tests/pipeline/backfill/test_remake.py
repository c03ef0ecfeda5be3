"""Derived metrics after a deletion on request: not used for rewriting, made again, and equal to the rows left."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lakerunner.index.commit import Outcome
from lakerunner.index.deletions import cancel_deletion
from lakerunner.index.derived_windows import forget_replaced
from lakerunner.index.rule_holes import record_gone
from lakerunner.index.segments import live_segments
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.backfill.remake import Remaking
from lakerunner.pipeline.backfill.task import run_task
from lakerunner.pipeline.delete.still_counted import derived_windows, still_counted
from lakerunner.pipeline.rule_registry import RuleRegistry
from lakerunner.store.config import StoreConfig
from tests.formats.otlp_samples import pairs
from tests.index.window_states import window_states
from tests.pipeline.delete import deleting
from tests.pipeline.derive.test_rules_in_lake import (
    FIRST,
    LATE,
    MATCH,
    NOW_S,
    RULES,
    applied,
    asked,
    backfill,
    compact,
    equal,
    gaps,
    ingest,
    logs,
)
from tests.pipeline.derive.test_service_graph import Spans, batch_of, brute_force, spans_of
from tests.pipeline.lake import ORG, Lake

DELETED = "rows were deleted on request"
EU = '{region="eu"}'
CALLS = "traces_service_graph_request_total"
REMADE = "sum by (region) (sum_over_time(errors_total[30m]))"


def delete(
    lake: Lake, selector: str, signal: str = "logs", until_s: float = 600, *, work_off: bool = True
) -> uuid.UUID:
    found = deleting.request(lake.database, ORG, signal, selector, 0, int((NOW_S + until_s) * 1e9))
    if work_off:
        assert set(deleting.work_off(lake.settings, lake.database)) == {Outcome.COMMITTED}
    return found


def remaking(lake: Lake, run: Callable[[Any], Any] = run_task, **changed: Any) -> Remaking:
    derive = lake.settings.derive.model_copy(update={"remake_wait_s": 1e-9, "span_metrics": True, **changed})
    # The hour is over.
    with lake.database.transaction() as tx:
        tx.execute("UPDATE derived_window SET ready_at = now() - interval '1 day'")
    rules, target = RuleRegistry(lake.database, derive), StoreConfig.of(lake.settings)
    return Remaking(lake.database, rules, derive, target, lambda tasks: [run(task) for task in tasks])


def states(lake: Lake, deletion_id: uuid.UUID) -> list[str]:
    with lake.database.transaction() as tx:
        return [each["state"] for each in derived_windows(tx, deleting.found(lake.database, ORG, deletion_id))]


def counted_by(lake: Lake, deletion_id: uuid.UUID) -> dict[str, str]:
    with lake.database.transaction() as tx:
        return {
            each["metric"]: each["note"] for each in still_counted(tx, deleting.found(lake.database, ORG, deletion_id))
        }


def test_samples_say_again_what_is_left(lake: Lake) -> None:
    applied(lake)
    ingest(lake, logs(FIRST))
    ingest(lake, logs(LATE))
    compact(lake, METRICS)
    deletion_id = delete(lake, EU, work_off=False)
    # At once: the rows are hidden, and no query of rows is answered from samples that count them.
    assert gaps(lake, "errors_total") == {DELETED} and states(lake, deletion_id) == ["hidden"]
    assert remaking(lake).one() is None, "rows are still there"
    assert set(deleting.work_off(lake.settings, lake.database)) == {Outcome.COMMITTED}
    assert gaps(lake, "errors_total") == {DELETED} and set(states(lake, deletion_id)) == {"due"}
    assert (
        counted_by(lake, deletion_id)["errors_total"] == "it counts the deleted rows until it is made again, by itself"
    )
    while remaking(lake).one() is Outcome.COMMITTED:
        pass
    assert equal(lake, "errors_total", MATCH, "region") == 3
    assert asked(lake, "promql", "histogram_count(sum_over_time(ms[30m]))") == {"{}": 1.0}
    assert asked(lake, "promql", "max_over_time(ms_max[30m])") == {"{}": 8.0}
    assert not gaps(lake, "errors_total") and set(states(lake, deletion_id)) == {"made"}
    assert counted_by(lake, deletion_id) == {}
    # The samples that were replaced are hidden; then they are gone, and nothing changes.
    assert set(deleting.work_off(lake.settings, lake.database)) == {Outcome.COMMITTED}
    assert equal(lake, "errors_total", MATCH, "region") == 3
    times = [tuple(row.values()) for row in lake.rows(METRICS).select(["tid", "timestamp"]).to_pylist()]
    assert len(times) == len(set(times)) > 0
    with lake.database.transaction() as tx:
        assert forget_replaced(tx, 60.0, 10) == 0
        assert forget_replaced(tx, 0.0, 10) == 1, "the deletion of the samples that were replaced"
    assert set(states(lake, deletion_id)) == {"made"}
    # Rows that come later count as ever.
    ingest(lake, logs([(3, "error again", "eu")]))
    assert equal(lake, "errors_total", MATCH, "region") == 4
    compact(lake)
    compact(lake, METRICS)
    assert equal(lake, "errors_total", MATCH, "region") == 4


def test_rollups_above_are_dirty(lake: Lake) -> None:
    applied(lake)
    ingest(lake, logs(FIRST))
    delete(lake, EU)
    with lake.database.transaction() as tx:
        tx.execute("UPDATE rollup_window SET dirty = false, made_generation = generation")
    assert remaking(lake).one() is Outcome.COMMITTED
    with lake.database.transaction() as tx:
        found = window_states(tx, ORG, TimeRange(NOW_S * 10**9, (NOW_S + 60) * 10**9))
    assert found and all(each.dirty for each in found if each.start_ns < (NOW_S + 10) * 10**9 <= each.end_ns)


@pytest.mark.parametrize("seed", range(4))
def test_spans_count_what_is_left(lake: Lake, seed: int) -> None:
    draw = random.Random(seed)
    derive = lake.settings.derive.model_copy(update={"span_metrics": True, "service_graph": True})
    lake.settings = lake.settings.model_copy(update={"derive": derive})
    applied(lake)
    spans = []
    for _ in range(draw.randint(1, 3)):
        spans += spans_of(draw, 20, (NOW_S + draw.randrange(-7_200, 100)) * 10**9)
    # The two sides of calls come with different objects.
    draw.shuffle(spans)
    pieces = draw.randint(2, 4)
    for piece in range(pieces):
        ingest(lake, batch_of(spans[piece::pieces]), TRACES)
    if draw.random() < 0.5:
        compact(lake, TRACES)
    service = draw.choice(["cart", "gateway", "payments"])
    deletion_id = delete(lake, f'{{service_name="{service}"}}', "traces", draw.choice([20, 600]))
    while remaking(lake).one() is Outcome.COMMITTED:
        pass
    rows = lake.rows(TRACES).select(["service_name", "status_code"]).to_pylist()
    calls = asked(lake, "promql", "sum by (service) (sum_over_time(traces_spanmetrics_calls_total[4h]))")
    seconds = asked(lake, "promql", "histogram_count(sum(sum_over_time(traces_spanmetrics_latency[4h])))")
    assert sum(calls.values()) == len(rows) == sum(seconds.values())
    for name in {row["service_name"] for row in rows}:
        assert calls[str({"service": name})] == sum(row["service_name"] == name for row in rows)
    failed = asked(lake, "promql", "sum(sum_over_time(failed_spans_total[4h]))")
    assert sum(failed.values()) == sum(row["status_code"] == "error" for row in rows)
    assert _calls(lake) == _calls_of_rows(lake, spans)
    assert counted_by(lake, deletion_id) == {}
    assert not gaps(lake, "failed_spans_total", 9_000)


def _calls(lake: Lake) -> dict[str, float]:
    return asked(lake, "promql", f"sum by (client, server) (sum_over_time({CALLS}[4h]))")


def _calls_of_rows(lake: Lake, spans: Spans) -> dict[str, float]:
    left = set(lake.rows(TRACES).column("span_id").to_pylist())
    calls, _ = brute_force([(service, span) for service, span in spans if span.span_id.hex() in left])
    return {str({"client": client, "server": server}): float(count) for (client, server), count in calls.items()}


def _with_graph(lake: Lake) -> None:
    derive = lake.settings.derive.model_copy(update={"span_metrics": True, "service_graph": True})
    lake.settings = lake.settings.model_copy(update={"derive": derive})


def _call(at_s: float, span_id: bytes, kind: int, parent: bytes = b"", peer: str = "") -> Span:
    at = int((NOW_S + at_s) * 1e9)
    span = Span(trace_id=b"t" * 16, span_id=span_id, parent_span_id=parent, kind=kind, name="call")
    span.start_time_unix_nano, span.end_time_unix_nano = at, at + 10**6
    span.attributes.extend(pairs({"peer.service": peer} if peer else {}))
    return span


def test_calls_across_hours_and_calls_that_wait(lake: Lake) -> None:
    _with_graph(lake)
    hour = -(NOW_S % 3_600)
    ingest(
        lake,
        batch_of(
            [
                ("gateway", _call(hour - 1, b"earlier-", 3)),
                ("gateway", _call(hour + 5, b"deleted-", 3, peer="cart-alias")),
                ("gateway", _call(hour + 6, b"waiting-", 3)),
                ("gateway", _call(hour + 7, b"message-", 4)),
                ("stock", _call(hour + 8, b"gone----", 3)),
            ]
        ),
        TRACES,
    )
    servers = [
        ("payments", _call(hour + 1, b"s-------", 2, b"earlier-")),
        ("cart", _call(hour + 5, b"c-------", 2, b"deleted-")),
        ("payments", _call(hour + 9, b"consumer", 5, b"message-")),
    ]
    ingest(lake, batch_of(servers), TRACES)
    edges = {("gateway", "payments"): 2.0, ("gateway", "cart"): 1.0}
    assert _calls(lake) == {str({"client": a, "server": b}): n for (a, b), n in edges.items()}
    delete(lake, '{service_name=~"cart|stock"}', "traces")
    while remaking(lake).one() is Outcome.COMMITTED:
        pass
    # The server is gone, and the client says whom it called. What waits goes on waiting, unless it is gone.
    edges = {("gateway", "payments"): 2.0, ("gateway", "cart-alias"): 1.0}
    assert _calls(lake) == {str({"client": a, "server": b}): n for (a, b), n in edges.items()}
    with lake.database.transaction() as tx:
        waiting = tx.execute("SELECT pair FROM service_graph_half ORDER BY pair").fetchall()
    ids = [bytes.fromhex(row["pair"][32:]) for row in waiting]
    assert ids == [b"message-", b"waiting-"]
    # Their other sides come later, and count once.
    more = [
        ("payments", _call(hour + 10, b"answer--", 2, b"waiting-")),
        ("payments", _call(hour + 11, b"another-", 5, b"message-")),
        ("payments", _call(hour + 12, b"orphan--", 2, b"gone----")),
    ]
    ingest(lake, batch_of(more), TRACES)
    edges["gateway", "payments"] = 4.0
    assert _calls(lake) == {str({"client": a, "server": b}): n for (a, b), n in edges.items()}


def test_calls_that_are_paired_meanwhile_make_the_attempt_stale(lake: Lake) -> None:
    _with_graph(lake)
    hour = -(NOW_S % 3_600)
    ingest(lake, batch_of([("gateway", _call(hour + 5, b"client--", 3)), ("cart", _call(hour + 6, b"x", 1))]), TRACES)
    delete(lake, '{service_name="cart"}', "traces")
    # The server began in another hour, so the segments of this one are the same.
    server = batch_of([("payments", _call(hour + 3_700, b"server--", 2, b"client--"))])
    done = []

    def run(task: Any) -> Any:
        if not done:
            done.append(ingest(lake, server, TRACES))
        return run_task(task)

    assert remaking(lake, run).one() is Outcome.STALE
    assert remaking(lake).one() is Outcome.COMMITTED
    assert _calls(lake) == {str({"client": "gateway", "server": "payments"}): 1.0}


def test_a_compaction_while_segments_are_listed_counts_no_call_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    _with_graph(lake)
    call = [("gateway", _call(5, b"client--", 3)), ("payments", _call(6, b"server--", 2, b"client--"))]
    ingest(lake, batch_of(call), TRACES)
    ingest(lake, batch_of([("gateway", _call(7, b"other---", 1)), ("cart", _call(8, b"x", 1))]), TRACES)
    delete(lake, '{service_name="cart"}', "traces")

    def listed(*terms: Any) -> list[Segment]:
        found = live_segments(*terms)
        compact(lake, TRACES)
        return found

    with monkeypatch.context() as patched:
        patched.setattr("lakerunner.pipeline.backfill.remake.live_segments", listed)
        assert remaking(lake).one() is Outcome.STALE
    assert remaking(lake).one() is Outcome.COMMITTED
    assert _calls(lake) == {str({"client": "gateway", "server": "payments"}): 1.0}


def test_a_service_graph_that_cannot_be_made_again_is_named(lake: Lake) -> None:
    _with_graph(lake)
    call = [("gateway", _call(5, b"client--", 3)), ("cart", _call(6, b"server--", 2, b"client--"))]
    ingest(lake, batch_of(call), TRACES)
    deletion_id = delete(lake, '{service_name="cart"}', "traces")
    assert remaking(lake, service_graph=False).one() is Outcome.COMMITTED
    left = counted_by(lake, deletion_id)
    assert CALLS in left and all(note.endswith("derive.service_graph is off") for note in left.values())
    assert _calls(lake) == {str({"client": "gateway", "server": "cart"}): 1.0}


def test_what_came_or_changed_meanwhile_makes_the_attempt_stale(lake: Lake) -> None:
    applied(lake)
    ingest(lake, logs(FIRST))
    deletion_id = delete(lake, EU)

    def while_running(change: Callable[[], Any]) -> Outcome | None:
        done = []

        def run(task: Any) -> Any:
            result = run_task(task)
            if not done:
                done.append(change())
            return result

        return remaking(lake, run).one()

    assert while_running(lambda: ingest(lake, logs(LATE))) is Outcome.STALE
    assert while_running(lambda: compact(lake)) is Outcome.STALE
    changed = RULES.replace("dimensions: [service_name, region]", "dimensions: [region]")
    assert while_running(lambda: applied(lake, changed)) is Outcome.STALE
    # What the changed rule has not seen is not counted here, and the backfill counts it.
    assert remaking(lake).one() is Outcome.COMMITTED
    assert asked(lake, "promql", REMADE) == {}
    assert backfill(lake) == [Outcome.COMMITTED]
    assert equal(lake, "errors_total", MATCH, "region") == 5
    assert asked(lake, "promql", "max_over_time(ms_max[30m])") == {"{}": 70.0}
    assert states(lake, deletion_id) == ["made"]
    # Two workers with one window: the second finds it made.
    second = delete(lake, '{region="us"}')
    assert while_running(lambda: remaking(lake).one()) is Outcome.STALE
    assert set(states(lake, second)) == {"made"}
    assert equal(lake, "errors_total", MATCH, "region") == 3


def test_what_cannot_be_made_again_is_named(lake: Lake) -> None:
    applied(lake)
    ingest(lake, logs(FIRST))
    before = asked(lake, "promql", REMADE)
    deletion_id = delete(lake, EU)
    with lake.database.transaction() as tx:
        record_gone(tx, ORG, LOGS.name, 0, (NOW_S + 5) * 10**9, "logs have expired")
    assert remaking(lake).one() is None
    assert states(lake, deletion_id) == ["kept"] and asked(lake, "promql", REMADE) == before
    assert counted_by(lake, deletion_id)["errors_total"].endswith("cannot be made again: logs have expired")
    assert DELETED in gaps(lake, "errors_total")


def test_samples_that_somebody_sent_under_the_name_stay(lake: Lake) -> None:
    from tests.pipeline.derive.test_rules_in_lake import gauges

    applied(lake)
    ingest(lake, logs(FIRST))
    ingest(lake, gauges([(20, "/a", "500", 7.0)]).replace(b'"load"', b'"errors_total"'), METRICS)
    deletion_id = delete(lake, EU)
    assert remaking(lake).one() is Outcome.COMMITTED
    assert sum(asked(lake, "promql", "sum_over_time(errors_total[30m])").values()) == 10
    assert asked(lake, "promql", "histogram_count(sum_over_time(ms[30m]))") == {"{}": 1.0}
    assert DELETED in gaps(lake, "errors_total") and not gaps(lake, "ms")
    assert "was sent or recorded" in counted_by(lake, deletion_id)["errors_total"]


def test_a_cancelled_deletion_leaves_rules_as_they_were(lake: Lake) -> None:
    applied(lake)
    ingest(lake, logs(FIRST))
    deletion_id = deleting.request(lake.database, ORG, "logs", EU, 0, (NOW_S + 600) * 10**9, 1e6)
    assert gaps(lake, "errors_total") == {DELETED}
    with lake.database.transaction() as tx:
        cancel_deletion(tx, ORG, deletion_id)
    assert not gaps(lake, "errors_total")
    # Nothing matches: nothing is to be made again.
    nothing = delete(lake, '{region="nowhere"}', work_off=False)
    deleting.work_off(lake.settings, lake.database)
    assert not gaps(lake, "errors_total") and states(lake, nothing) == []
