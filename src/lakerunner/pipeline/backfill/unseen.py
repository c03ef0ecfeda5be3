"""Which rules a segment is evaluated with that have not seen it.

Rules over metrics read samples that were sent or recorded. Those that Lakerunner derives may be made again after a
deletion, and nothing would tell the rule: a segment that may hold some, and that such a rule reads, is left alone.
"""

from __future__ import annotations

from collections.abc import Collection

from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.pipeline.derive.rule_set import RuleSet
from lakerunner.pipeline.rule_registry import RuleRegistry
from lakerunner.rules.check import BUILT_IN_METRICS
from lakerunner.rules.matches import metric_match


def is_derived(metric: str, rules: Collection[str]) -> bool:
    """Whether Lakerunner makes the metric itself, given the names of the org's rules."""
    return metric in rules or metric.startswith(BUILT_IN_METRICS)


def unseen_rules(registry: RuleRegistry, segment: Segment) -> RuleSet | None:
    """The rules of the current catalog that have not seen the segment; None if it is not to be evaluated."""
    rules = registry.latest(segment.org_id, segment.signal)
    if segment.rules_version >= rules.version:
        return None
    unseen = tuple(each for each in rules.rules if each.since_version > segment.rules_version)
    if segment.signal == METRICS.name and _reads_derived(registry, segment, rules):
        return None
    return RuleSet(rules.org_id, rules.signal, rules.version, unseen)


def _reads_derived(registry: RuleRegistry, segment: Segment, rules: RuleSet) -> bool:
    read = {metric_match(each.rule).metric for each in rules.rules}
    names = {each.rule.name for each in rules.rules}
    for signal in (LOGS, TRACES):
        names |= {each.rule.name for each in registry.latest(segment.org_id, signal.name).rules}
    derived = {metric for metric in read if is_derived(metric, names)}
    held = segment.pruning.values.get("metric_name")
    return bool(derived) and (held is None or not derived.isdisjoint(held))
