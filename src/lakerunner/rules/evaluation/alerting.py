"""Alerting rules: the life of alerts from vector to vector, as Prometheus has it.

A sample of the rule's expression is an alert: pending, then firing when it held for `for`. An alert whose sample is
gone is resolved, at once or after `keep_firing_for`, and is kept for a while so that receivers hear of its end.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.rules.evaluation.vector import RuleError, Sample

ALERT_NAME, ALERT_STATE = "alertname", "alertstate"
ALERTS, ALERTS_FOR_STATE = "ALERTS", "ALERTS_FOR_STATE"
#: How long a resolved alert is kept and sent again: a receiver may have been down when it ended.
RESOLVED_KEEP_MS = 15 * 60 * 1000


class State(enum.StrEnum):
    PENDING = "pending"
    FIRING = "firing"
    #: It fired and is over.
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True)
class AlertRule:
    """What the life of a rule's alerts depends on."""

    name: str
    for_ms: int = 0
    keep_firing_ms: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """An alert that is pending or firing, or ended a short while ago. Times are in milliseconds; None: never."""

    labels: LabelSet
    annotations: LabelSet
    value: float
    state: State
    active_at_ms: int
    fired_at_ms: int | None = None
    resolved_at_ms: int | None = None
    keep_firing_since_ms: int | None = None


#: Expands the text of a label or annotation for a sample.
Expand = Callable[[str, Sample], str]


@dataclass(frozen=True, slots=True)
class AlertStep:
    """The alerts of a rule after one evaluation, and the samples that tell of them."""

    alerts: tuple[ActiveAlert, ...]
    samples: tuple[Sample, ...]


def step(
    rule: AlertRule,
    known: Sequence[ActiveAlert],
    vector: Sequence[Sample],
    now_ms: int,
    expand: Expand,
    limit: int = 0,
) -> AlertStep:
    """What becomes of the known alerts when the rule's expression has this vector.

    Raises a RuleError when two alerts would have the same labels, or more than `limit` (0: any number) are active; then
    the first case changes nothing, and the second forgets all alerts (`forgets`).
    """
    fresh = _fresh(rule, vector, now_ms, expand)
    alerts = {alert.labels: alert for alert in known}
    for labels, alert in fresh.items():
        before = alerts.get(labels)
        if before is not None and before.state is not State.INACTIVE:
            alert = replace(before, value=alert.value, annotations=alert.annotations)
        alerts[labels] = alert
    kept: list[ActiveAlert] = []
    active = 0
    for labels, alert in alerts.items():
        after = _present(rule, alert, now_ms) if labels in fresh else _absent(rule, alert, now_ms)
        if after is not None:
            kept.append(after)
            active += after.state is not State.INACTIVE
    if 0 < limit < active:
        raise LimitExceeded(f"exceeded limit of {limit} with {active} alerts")
    return AlertStep(tuple(kept), tuple(_samples(kept)))


class LimitExceeded(RuleError):
    """More alerts than the group allows. The rule forgets all of its alerts."""


def _fresh(rule: AlertRule, vector: Sequence[Sample], now_ms: int, expand: Expand) -> dict[LabelSet, ActiveAlert]:
    fresh: dict[LabelSet, ActiveAlert] = {}
    for sample in vector:
        own = {name: expand(text, sample) for name, text in rule.labels.items()}
        labels = LabelSet.of({**dict(sample.labels.without(METRIC_NAME)), **own, ALERT_NAME: rule.name})
        if labels in fresh:
            raise RuleError("vector contains metrics with the same labelset after applying alert labels")
        annotations = tuple(sorted((name, expand(text, sample)) for name, text in rule.annotations.items()))
        fresh[labels] = ActiveAlert(labels, LabelSet(annotations), sample.value, State.PENDING, now_ms)
    return fresh


def _present(rule: AlertRule, alert: ActiveAlert, now_ms: int) -> ActiveAlert:
    held = now_ms - alert.active_at_ms >= rule.for_ms
    if alert.state is State.PENDING and held:
        return replace(alert, state=State.FIRING, fired_at_ms=now_ms, keep_firing_since_ms=None)
    if alert.state is State.FIRING and not held:
        # The rule's `for` has grown since.
        return replace(alert, state=State.PENDING, fired_at_ms=None, keep_firing_since_ms=None)
    return replace(alert, keep_firing_since_ms=None)


def _absent(rule: AlertRule, alert: ActiveAlert, now_ms: int) -> ActiveAlert | None:
    if alert.state is State.PENDING:
        return None
    if alert.state is State.INACTIVE:
        assert alert.resolved_at_ms is not None
        return None if now_ms - alert.resolved_at_ms > RESOLVED_KEEP_MS else alert
    if rule.keep_firing_ms > 0:
        since_ms = now_ms if alert.keep_firing_since_ms is None else alert.keep_firing_since_ms
        alert = replace(alert, keep_firing_since_ms=since_ms)
        if now_ms - since_ms < rule.keep_firing_ms:
            if now_ms - alert.active_at_ms < rule.for_ms:
                return replace(alert, state=State.PENDING, fired_at_ms=None, keep_firing_since_ms=None)
            return alert
    return replace(alert, state=State.INACTIVE, resolved_at_ms=now_ms)


def _samples(alerts: Sequence[ActiveAlert]) -> list[Sample]:
    """`ALERTS` and `ALERTS_FOR_STATE` of the alerts that are pending or firing."""
    made = []
    for alert in alerts:
        if alert.state is State.INACTIVE:
            continue
        labels = dict(alert.labels)
        made.append(Sample(LabelSet.of({**labels, METRIC_NAME: ALERTS, ALERT_STATE: alert.state.value}), 1.0))
        made.append(Sample(LabelSet.of({**labels, METRIC_NAME: ALERTS_FOR_STATE}), float(alert.active_at_ms // 1000)))
    return made
