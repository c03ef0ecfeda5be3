"""A ruler evaluates groups when they are due, writes what they make, remembers, and tells receivers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lakerunner.index.alert_states import put_sent
from lakerunner.index.ended_groups import ended_ids
from lakerunner.index.rule_groups import delete_groups, list_groups, put_group
from lakerunner.model.errors import Conflict
from lakerunner.runtime.stop import Stop
from tests.components.postgres import PostgresServer
from tests.ruler.lake_of_rules import BASE_MS, LakeOfRules, lake_of_rules


@pytest.fixture(scope="module")
def whole_lake(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[LakeOfRules]:
    with lake_of_rules(tmp_path_factory.mktemp("lake"), postgres_server.new_database()) as lake:
        yield lake


@pytest.fixture
def lake(whole_lake: LakeOfRules) -> LakeOfRules:
    whole_lake.clear()
    return whole_lake


_ALERT = """\
  query_offset: 0s
  rules:
  - record: job:up
    expr: sum by (job) (up)
  - alert: Down
    expr: job:up < 1
    for: 1m
    labels: {severity: page}
    annotations: {summary: '{{ $labels.job }} is at {{ $value }}'}
"""


def test_results_are_written_alerts_fire_and_are_told_once(lake: LakeOfRules) -> None:
    lake.add("up", [1, 1, 0, 0, 0, 0, 1, 1], job="a")
    lake.group(_ALERT)
    ruler = lake.ruler(catch_up=20, resend_s=30, alertmanagers="http://am")
    for minute in range(1, 9):
        lake.look(ruler, minute)
    assert [sample.value for sample in lake.ask(ruler, "job:up", 4)] == [0.0]
    # The rule that reads what the one before it recorded sees it at the same time.
    (firing,) = lake.ask(ruler, 'ALERTS{alertstate="firing"}', 5)
    assert str(firing.labels) == 'ALERTS{alertname="Down", alertstate="firing", job="a", severity="page"}'
    assert lake.ask(ruler, "ALERTS", 8) == []
    assert len(lake.ask(ruler, "ALERTS_FOR_STATE", 5)) == 1
    hooks = [body["alerts"][0] for url, body in lake.posted.bodies if url == "http://hook"]
    assert [alert["status"] for alert in hooks] == ["firing", "resolved"]
    assert hooks[0]["annotations"] == {"summary": "a is at 0"}
    assert hooks[0]["startsAt"] == hooks[1]["startsAt"] and hooks[0]["endsAt"] is None
    # An Alertmanager is told again and again, each time with a later end, and then the real one.
    alerts = [body[0] for url, body in lake.posted.bodies if url == "http://am/api/v2/alerts"]
    assert len(alerts) > 3 and len({alert["startsAt"] for alert in alerts}) == 1
    assert alerts[0]["endsAt"] < alerts[1]["endsAt"] and alerts[-1]["endsAt"] == hooks[1]["endsAt"]
    assert alerts[0]["labels"] | {"org": ""} == {"alertname": "Down", "job": "a", "severity": "page", "org": ""}


def test_a_successor_goes_on_where_a_ruler_ended(lake: LakeOfRules) -> None:
    lake.add("up", [1, 0, 0, 0, 0, 0, 0], job="a")
    lake.group(_ALERT.replace("for: 1m", "for: 3m"))
    first = lake.ruler()
    for minute in (2, 3, 4):
        lake.look(first, minute)
    assert lake.posted.bodies == []
    second = lake.ruler()
    lake.look(second, 5, lake.leases())
    assert [body["alerts"][0]["status"] for _, body in lake.posted.bodies] == ["firing"]
    # A third one knows that the receiver was told.
    lake.look(lake.ruler(), 5.2)
    assert len(lake.posted.bodies) == 1


def test_missed_evaluations_are_made_up_for_up_to_a_bound_and_counted(lake: LakeOfRules) -> None:
    lake.add("up", [1] * 30, job="a")
    lake.group("  query_offset: 0s\n  rules: [{record: r, expr: up}]\n")
    lake.look(lake.ruler(), 2)
    ruler = lake.ruler(catch_up=3)
    lake.look(ruler, 22)
    with lake.database.transaction() as tx:
        (group,) = list_groups(tx, lake.org_id)
    assert (group.evaluations, group.missed) == (5, 16)
    assert [len(lake.ask(ruler, "count_over_time(r[30m])", 22))] == [1]
    assert lake.ask(ruler, "count_over_time(r[30m])", 22)[0].value == 5


def test_a_rule_that_fails_says_so_and_the_others_go_on(lake: LakeOfRules) -> None:
    lake.add("up", [1] * 5, job="a")
    lake.add("up", [1] * 5, job="b")
    rules = "[{record: bad, expr: up, labels: {job: x}}, {record: good, expr: up}, {alert: Up, expr: up}]"
    lake.group(f"  query_offset: 0s\n  limit: 1\n  rules: {rules}\n")
    ruler = lake.ruler()
    lake.look(ruler, 2)
    bad, good, up = [state.state for state in lake.states()]
    assert bad["health"] == "err" and "same labelset after applying rule labels" in str(bad["last_error"])
    assert good["last_error"] == "exceeded limit of 1 with 2 series"
    assert up["last_error"] == "exceeded limit of 1 with 2 alerts" and up["alerts"] == []


def test_a_series_that_ends_is_marked_stale(lake: LakeOfRules) -> None:
    lake.add("up", [1, 1, None, None, None], job="a")
    lake.group("  query_offset: 0s\n  rules: [{record: r, expr: up unless on () (vector(time()) > 1e15)}]\n")
    ruler = lake.ruler(catch_up=20)
    lake.look(ruler, 2)
    assert len(lake.ask(ruler, "r", 2)) == 1
    lake.group("  query_offset: 0s\n  rules: [{record: r, expr: up > 5}]\n")
    ruler._groups_s = float("-inf")
    lake.look(ruler, 3.5)
    assert lake.ask(ruler, "r", 3.5) == []


def test_of_two_rulers_one_stores_an_evaluation(lake: LakeOfRules) -> None:
    lake.add("up", [1] * 5, job="a")
    key = lake.group("  query_offset: 0s\n  rules: [{record: r, expr: up}]\n")
    first, second = lake.ruler(), lake.ruler()
    lake.look(first, 2)
    lake.look(second, 2)
    stolen = lake.leases("somebody else")
    assert stolen == {}
    held = first._held[key].group
    held.evaluated_at_ms = BASE_MS - 60_000
    lake.look(first, 2)
    with lake.database.transaction() as tx:
        assert list_groups(tx, lake.org_id)[0].evaluations == 1
    with lake.database.transaction() as tx:
        assert put_group(tx, key, "groups: [{name: g, rules: [{record: r, expr: up * 2}]}]", "test")
        assert not put_group(tx, key, "groups: [{name: g, rules: [{record: r, expr: up * 2}]}]", "test")
    first._groups_s = float("-inf")
    lake.look(first, 4)
    assert first._held[key].group.version == 2


def test_a_receiver_that_is_down_is_told_later(lake: LakeOfRules) -> None:
    lake.add("up", [0] * 9, job="a")
    lake.group(_ALERT.replace("for: 1m", "for: 0s"))
    ruler = lake.ruler()
    lake.posted.fails = True
    lake.look(ruler, 2)
    (receiver,) = ruler.notifier.receivers
    assert receiver.is_resting and lake.posted.bodies == []
    lake.posted.fails, receiver._retry_at_s = False, 0.0
    lake.look(ruler, 2.1)
    assert [body["alerts"][0]["status"] for _, body in lake.posted.bodies] == ["firing"]


def test_new_samples_of_a_metric_are_evaluated_at_once(lake: LakeOfRules) -> None:
    import time

    lake.group("  interval: 1h\n  rules: [{alert: Any, expr: errors > 0}, {alert: Other, expr: other > 0}]\n")
    ruler = lake.ruler(continuous="all", continuous_gap_s=1)
    leases = lake.leases()

    def look() -> None:
        ruler.look(leases)
        for held in ruler._held.values():
            if held.running is not None:
                held.running.result(30)

    look()
    look()
    offset_minutes = (time.time_ns() // 1_000_000 - 12_000 - BASE_MS) // 60_000
    now_s = time.time()
    source_values: list[float | None] = [None] * int((now_s * 1000 - BASE_MS) // 1000 - 12) + [1.0]
    assert offset_minutes > 0
    lake.add("errors", source_values, step_ms=1_000)
    time.sleep(1.1)
    look()
    look()
    ruler.notifier.round(ruler.notifier.receivers[0])
    (body,) = [body for _, body in lake.posted.bodies]
    assert body["alerts"][0]["labels"]["alertname"] == "Any"


def _heard(lake: LakeOfRules) -> list[tuple[str, str]]:
    return [
        (alert["status"], alert["labels"]["alertname"])
        for url, body in lake.posted.bodies
        if url == "http://hook"
        for alert in body["alerts"]
    ]


def test_receivers_hear_of_the_end_of_alerts_whose_group_is_deleted(lake: LakeOfRules) -> None:
    lake.add("up", [0] * 9, job="a")
    key = lake.group("  query_offset: 0s\n  rules: [{alert: Down, expr: up < 1}, {alert: Zero, expr: up == 0}]\n")
    ruler = lake.ruler()
    lake.look(ruler, 2)
    assert _heard(lake) == [("firing", "Down"), ("firing", "Zero")]
    # A rule that its group still has goes on; the other one is over.
    lake.group("  query_offset: 0s\n  rules: [{alert: Down, expr: up < 1}]\n")
    ruler._groups_s = float("-inf")
    lake.look(ruler, 3)
    assert _heard(lake)[2:] == [("resolved", "Zero")]
    with lake.database.transaction() as tx:
        delete_groups(tx, key.org_id, key.namespace, key.name)
    # The ruler dies before it tells anybody: its successor does.
    lake.posted.fails = True
    ruler._groups_s = float("-inf")
    lake.look(ruler, 4)
    lake.posted.fails = False
    second = lake.ruler()
    lake.look(second, 5)
    lake.look(second, 6)
    assert _heard(lake)[3:] == [("resolved", "Down")]
    (last,) = lake.posted.bodies[-1][1]["alerts"]
    assert last["endsAt"] > last["startsAt"]
    # Told to all: nothing is left of the group.
    second._groups_s = float("-inf")
    lake.look(second, 7)
    with lake.database.transaction() as tx:
        assert ended_ids(tx) == set()


def test_a_ruler_that_was_suspended_says_nothing_before_it_knows_its_leases(lake: LakeOfRules) -> None:
    lake.add("up", [0] * 9, job="a")
    lake.group("  query_offset: 0s\n  rules: [{alert: Down, expr: up < 1}]\n")
    ruler = lake.ruler()
    ruler._certain_until_s = 0.0
    lake.look(ruler, 2)
    assert _heard(lake) == []
    ruler._certain_until_s = float("inf")
    lake.look(ruler, 3)
    assert _heard(lake) == [("firing", "Down")]


def test_receivers_that_are_told_at_once_are_both_remembered(
    lake: LakeOfRules, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    lake.add("up", [0] * 9, job="a")
    lake.group("  query_offset: 0s\n  rules: [{alert: Down, expr: up < 1}]\n")
    ruler = lake.ruler(webhooks="http://hook,http://other")
    notifier, wanted = ruler.notifier, list(ruler.notifier.receivers)
    notifier.receivers.clear()
    lake.look(ruler, 3)
    writing, written = threading.Event(), threading.Event()

    def slow(*terms: Any) -> None:
        if not writing.is_set():
            writing.set()
            # The first writes last, if the other may write meanwhile.
            written.wait(0.5)
        put_sent(*terms)
        written.set()

    monkeypatch.setattr("lakerunner.ruler.group.put_sent", slow)
    threads = [threading.Thread(target=notifier.round, args=(each, BASE_MS + 180_000)) for each in wanted]
    for thread in threads:
        thread.start()
        assert writing.wait(30)
    for thread in threads:
        thread.join()
    (down,) = lake.states()
    assert set(down.sent) == {each.name for each in wanted}
    assert len(lake.posted.bodies) == 2


def test_what_was_told_is_not_stored_over_what_a_successor_stored(lake: LakeOfRules) -> None:
    lake.add("up", [0] * 9, job="a")
    lake.group("  query_offset: 0s\n  rules: [{alert: Down, expr: up < 1}]\n")
    ruler = lake.ruler()
    (hook,) = ruler.notifier.receivers
    ruler.notifier.receivers.clear()
    lake.look(ruler, 3)

    def post(*_: object) -> None:
        """While the request is under way, the lease expires, another ruler takes it, and this one learns of it."""
        with lake.database.transaction() as tx:
            tx.execute("UPDATE lease SET holder = 'other', token = token + 1 WHERE name LIKE 'ruler/%'")
        ruler._leases = {}

    hook.post = post
    with pytest.raises(Conflict):
        ruler.notifier.round(hook, BASE_MS + 180_000)
    assert all(not state.sent for state in lake.states())


def test_a_request_that_ends_after_a_successor_told_the_end_is_followed_by_the_end(lake: LakeOfRules) -> None:
    lake.add("up", [1, 1, 0, 0, 1, 1, 1, 1, 1], job="a")
    lake.group("  query_offset: 0s\n  rules: [{alert: Down, expr: up < 1}]\n")
    first, second = lake.ruler(), lake.ruler()
    (hook,) = first.notifier.receivers
    first.notifier.receivers.clear()
    lake.look(first, 3)
    posted = hook.post

    def suspended(url: str, body: bytes) -> None:
        """Sent by a process that was suspended, while the alert ended and another ruler told both."""
        lake.expire_leases()
        others = lake.leases("other")
        for minute in (3.1, 5):
            lake.look(second, minute, others)
        assert _heard(lake) == [("firing", "Down"), ("resolved", "Down")]
        posted(url, body)

    hook.post = suspended
    with pytest.raises(Conflict):
        first.notifier.round(hook, BASE_MS + 180_000)
    assert _heard(lake)[2:] == [("firing", "Down")]
    second._groups_s = float("-inf")
    lake.look(second, 5.2, lake.leases("other"))
    assert _heard(lake)[3:] == [("resolved", "Down")]
    # Once is enough.
    lake.look(second, 6, lake.leases("other"))
    assert len(_heard(lake)) == 4


def test_a_ruler_that_lost_a_lease_and_has_it_again_says_nothing_of_what_it_knew_before(lake: LakeOfRules) -> None:
    lake.add("up", [0] * 9, job="a")
    lake.group("  query_offset: 0s\n  rules: [{alert: Down, expr: up < 1}]\n")
    first = lake.ruler()
    (hook,) = first.notifier.receivers
    first.notifier.receivers.clear()
    lake.look(first, 2)
    (known,) = first._groups()
    lake.expire_leases()
    lake.look(lake.ruler(), 2.5, lake.leases("other"))
    assert len(lake.posted.bodies) == 1
    lake.expire_leases()
    again = lake.leases()
    # As between the renewal of leases and the next look at groups.
    first._leases = dict(again)
    first.notifier.round(hook, BASE_MS + 150_000)
    assert len(lake.posted.bodies) == 1
    lake.look(first, 2.6, again)
    first.notifier.round(hook, BASE_MS + 160_000)
    assert len(lake.posted.bodies) == 1 and first._groups() != [known]


def test_a_ruler_that_runs_again_after_an_outage_serves_each_receiver_by_one_thread(lake: LakeOfRules) -> None:
    notifier, stop = lake.ruler(alertmanagers="http://am").notifier, Stop()
    names = sorted(receiver.name for receiver in notifier.receivers)

    def serving() -> list[str]:
        return sorted(thread.name for thread in threading.enumerate() if thread.name in names)

    try:
        notifier.start(stop)
        notifier.start(stop)
        assert serving() == names
    finally:
        stop.request()
        notifier.wake()
        notifier.join(5.0)
    assert serving() == []


def test_rules_of_an_org_together_keep_a_bounded_number_of_series_and_alerts(lake: LakeOfRules) -> None:
    for job in "abc":
        lake.add("up", [1, 1, 1], job=job)
    rules = "  query_offset: 0s\n  rules:\n"
    lake.group(rules + "  - record: first\n    expr: up\n  - record: second\n    expr: up\n", name="a")
    ruler = lake.ruler(catch_up=20, org_results=4)
    lake.look(ruler, 1)
    assert len(lake.ask(ruler, "first", 1)) == 3 and lake.ask(ruler, "second", 1) == []
    (group,) = ruler._groups()
    assert [state.results for state in group.states] == [3, 0]
    assert group.states[1].last_error == "the rules of the org have more than 4 series and alerts (ruler.org_results)"
