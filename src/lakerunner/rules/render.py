"""Writes groups of recording and alerting rules as YAML that reads to the same groups."""

from __future__ import annotations

from typing import Any

import yaml

from lakerunner.query.syntax.durations import format_duration_ms
from lakerunner.rules.definitions import PROMQL, Alert, Group, Record


def group_document(group: Group) -> dict[str, Any]:
    """The group as rule files have it, without its materialization rules."""
    document: dict[str, Any] = {"name": group.name}
    if group.interval_s is not None:
        document["interval"] = _duration(group.interval_s)
    if group.query_offset_s is not None:
        document["query_offset"] = _duration(group.query_offset_s)
    if group.limit:
        document["limit"] = group.limit
    if group.labels:
        document["labels"] = dict(group.labels)
    if group.language != PROMQL:
        document["language"] = group.language
    document["rules"] = [_rule(rule, group) for rule in evaluated_rules(group)]
    return document


def group_text(group: Group) -> str:
    """A rule file with this group alone."""
    return to_yaml({"groups": [group_document(group)]})


def to_yaml(document: Any) -> str:
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120))


def evaluated_rules(group: Group) -> list[Record | Alert]:
    """The rules that a ruler evaluates, in their order."""
    return [rule for rule in group.rules if isinstance(rule, Record | Alert)]


def _rule(rule: Record | Alert, group: Group) -> dict[str, Any]:
    document: dict[str, Any]
    if isinstance(rule, Record):
        document = {"record": rule.record, "expr": rule.expr}
    else:
        document = {"alert": rule.alert, "expr": rule.expr}
        if rule.for_s:
            document["for"] = _duration(rule.for_s)
        if rule.keep_firing_for_s:
            document["keep_firing_for"] = _duration(rule.keep_firing_for_s)
    if rule.labels:
        document["labels"] = dict(rule.labels)
    if isinstance(rule, Alert) and rule.annotations:
        document["annotations"] = dict(rule.annotations)
    if rule.language != group.language:
        document["language"] = rule.language
    return document


def _duration(seconds: float) -> str:
    return format_duration_ms(round(seconds * 1000))
