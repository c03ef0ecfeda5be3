"""The life of alerts: pending, firing, kept firing, resolved, forgotten; and the series that tell of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.labels import LabelSet
from lakerunner.rules.evaluation.alerting import ActiveAlert, AlertRule, LimitExceeded, State, step
from lakerunner.rules.evaluation.recording import record
from lakerunner.rules.evaluation.vector import RuleError, Sample

MINUTE = 60_000


def _sample(value: float = 1.0, **labels: str) -> Sample:
    return Sample(LabelSet.of({"__name__": "up", **labels}), value)


def _plain(text: str, _: Sample) -> str:
    return text


def _lives(rule: AlertRule, *present: bool) -> list[str]:
    """The state of one alert minute by minute; empty where it is not there."""
    alerts: tuple[ActiveAlert, ...] = ()
    states = []
    for minute, there in enumerate(present):
        alerts = step(rule, alerts, [_sample()] if there else [], minute * MINUTE, _plain).alerts
        states.append("".join(alert.state.value for alert in alerts))
    return states


def test_an_alert_fires_when_it_held_for_long_enough_and_is_resolved() -> None:
    rule = AlertRule("Down", for_ms=2 * MINUTE)
    assert _lives(rule, True, True, True, True, False, False) == [
        *("pending", "pending", "firing", "firing", "inactive", "inactive")
    ]
    assert _lives(rule, True, False, True, True) == ["pending", "", "pending", "pending"]


def test_an_alert_is_kept_firing() -> None:
    rule = AlertRule("Down", keep_firing_ms=2 * MINUTE)
    assert _lives(rule, True, False, False, False) == ["firing", "firing", "firing", "inactive"]
    assert _lives(rule, True, False, True, False, False, False) == [*["firing"] * 5, "inactive"]


def test_a_resolved_alert_is_forgotten_after_a_quarter_of_an_hour_and_may_begin_anew() -> None:
    rule = AlertRule("Down")
    assert _lives(rule, True, *[False] * 17)[1:] == [*["inactive"] * 16, ""]
    found = step(rule, (), [_sample()], 0, _plain).alerts
    found = step(rule, found, [], MINUTE, _plain).alerts
    (again,) = step(rule, found, [_sample()], 5 * MINUTE, _plain).alerts
    assert (again.state, again.active_at_ms, again.resolved_at_ms) == (State.FIRING, 5 * MINUTE, None)


def test_a_longer_for_makes_a_firing_alert_pending() -> None:
    found = step(AlertRule("Down"), (), [_sample()], 0, _plain).alerts
    (alert,) = step(AlertRule("Down", for_ms=10 * MINUTE), found, [_sample()], MINUTE, _plain).alerts
    assert (alert.state, alert.fired_at_ms) == (State.PENDING, None)


def test_series_tell_of_alerts() -> None:
    made = step(AlertRule("Down", MINUTE, labels={"severity": "page"}), (), [_sample(job="a")], 5_500, _plain)
    assert [(str(sample.labels), sample.value) for sample in made.samples] == [
        ('ALERTS{alertname="Down", alertstate="pending", job="a", severity="page"}', 1.0),
        ('ALERTS_FOR_STATE{alertname="Down", job="a", severity="page"}', 5.0),
    ]


def test_labels_of_the_rule_replace_those_of_the_sample_and_empty_ones_remove_them() -> None:
    (alert,) = step(
        AlertRule("Down", labels={"job": "x", "gone": ""}), (), [_sample(job="a", gone="b")], 0, _plain
    ).alerts
    assert str(alert.labels) == '{alertname="Down", job="x"}'


def test_two_alerts_with_the_same_labels_and_too_many_alerts_fail() -> None:
    with pytest.raises(RuleError, match="same labelset after applying alert labels"):
        step(AlertRule("Down", labels={"a": ""}), (), [_sample(a="1"), _sample(a="2")], 0, _plain)
    with pytest.raises(LimitExceeded, match="exceeded limit of 1 with 2 alerts"):
        step(AlertRule("Down"), (), [_sample(a="1"), _sample(a="2")], 0, _plain, limit=1)


def test_recording_names_and_labels_samples() -> None:
    made = record("job:up", {"team": "x", "gone": ""}, [_sample(2.0, job="a", gone="b")])
    assert [(str(each.labels), each.value) for each in made] == [('job:up{job="a", team="x"}', 2.0)]
    with pytest.raises(RuleError, match="same labelset after applying rule labels"):
        record("r", {"a": ""}, [_sample(a="1"), _sample(a="2")])
    with pytest.raises(RuleError, match="exceeded limit of 1 with 2 series"):
        record("r", {}, [_sample(a="1"), _sample(a="2")], limit=1)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 5), st.integers(0, 5))
def test_an_alert_fires_only_after_for_and_ends_only_after_keep_firing_for(
    present: list[bool], for_minutes: int, keep_minutes: int
) -> None:
    rule = AlertRule("Down", for_minutes * MINUTE, keep_minutes * MINUTE)
    states = _lives(rule, *present)
    for minute, state in enumerate(states):
        held = present[max(0, minute - for_minutes) : minute + 1]
        if all(held) and len(held) > for_minutes:
            assert state == "firing"
        if state == "firing" and (minute == 0 or states[minute - 1] != "firing"):
            assert all(held) and len(held) > for_minutes
        if state == "inactive" and states[minute - 1] == "firing":
            assert not any(present[max(0, minute - keep_minutes) : minute + 1])
