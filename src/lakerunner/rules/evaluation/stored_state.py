"""The state of a rule as JSON, so that a successor goes on exactly where a ruler ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

from lakerunner.model.labels import LabelSet
from lakerunner.rules.definitions import Alert, Record
from lakerunner.rules.evaluation.alerting import ActiveAlert, State
from lakerunner.rules.evaluation.rule import UNKNOWN, RuleState

_TIMES = ("active_at_ms", "fired_at_ms", "resolved_at_ms", "keep_firing_since_ms")


def rule_key(rule: Record | Alert) -> str:
    """What makes a rule the same after its group was changed: its kind, name and labels."""
    kind, name = ("record", rule.record) if isinstance(rule, Record) else ("alert", rule.alert)
    return orjson.dumps([kind, name, sorted(rule.labels.items())]).decode()


def to_json(state: RuleState) -> str:
    """The state as text. Numbers that JSON has no word for are texts."""
    document = {
        "alerts": [
            {
                "labels": dict(alert.labels),
                "annotations": dict(alert.annotations),
                "value": _shown(alert.value),
                "state": alert.state.value,
                **{name: getattr(alert, name) for name in _TIMES},
            }
            for alert in state.alerts
        ],
        "series": [dict(labels) for labels in sorted(state.series, key=lambda labels: labels.pairs)],
        "health": state.health,
        "last_error": state.last_error,
        "warning": state.warning,
        "evaluated_at_ms": state.evaluated_at_ms,
        "duration_s": state.duration_s,
    }
    # PostgreSQL's json cannot hold the character zero.
    return orjson.dumps(document).decode().replace("\\u0000", "\ufffd")


def from_json(document: Mapping[str, Any]) -> RuleState:
    alerts = tuple(
        ActiveAlert(
            LabelSet.of(each["labels"]),
            LabelSet(tuple(sorted(each["annotations"].items()))),
            float(each["value"]),
            State(each["state"]),
            *(each[name] for name in _TIMES),
        )
        for each in document.get("alerts", ())
    )
    return RuleState(
        alerts=alerts,
        series=frozenset(LabelSet.of(labels) for labels in document.get("series", ())),
        health=document.get("health", UNKNOWN),
        last_error=document.get("last_error", ""),
        warning=document.get("warning", ""),
        evaluated_at_ms=document.get("evaluated_at_ms"),
        duration_s=document.get("duration_s", 0.0),
    )


def _shown(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
