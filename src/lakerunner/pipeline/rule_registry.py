"""The catalog of rules as drivers see it: rule sets for tasks, read once per version, and what commits record."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from lakerunner.index.database import Database
from lakerunner.index.rule_catalog import StoredRule, catalog_version, rules_at
from lakerunner.index.rule_holes import Hole
from lakerunner.index.rule_series import full_days
from lakerunner.index.rule_versions import RulesUsed
from lakerunner.model.series_of_day import SeriesOfDay, union
from lakerunner.model.time import NS_PER_MS, NS_PER_S
from lakerunner.pipeline.derive.buckets import STEP_MS
from lakerunner.pipeline.derive.rule_set import Evaluation, RuleBudget, RuleSet, RuleVersion
from lakerunner.rules.stored import from_document
from lakerunner.runtime.settings import DeriveSettings

_STEP_NS = STEP_MS * NS_PER_MS


class RuleRegistry:
    """The rule sets of orgs, as this process last read them."""

    def __init__(self, database: Database, settings: DeriveSettings) -> None:
        self._database = database
        self._budget = RuleBudget(settings.rule_us_per_row, settings.rule_least_s)
        self._known: dict[tuple[uuid.UUID, str], RuleSet] = {}

    def latest(self, org_id: uuid.UUID, signal: str) -> RuleSet:
        """The rules of the current version of the catalog."""
        with self._database.transaction() as tx:
            version = catalog_version(tx, org_id, signal)
            known = self._known.get((org_id, signal))
            if known is None or known.version != version:
                rules = rules_at(tx, org_id, signal, version) if version else []
                known = replace(rule_set(org_id, signal, version, rules), budget=self._budget)
            if known.rules:
                known = replace(known, full=full_days(tx, org_id, signal))
        self._known[org_id, signal] = known
        return known

    def of(self, org_id: uuid.UUID, signal: str) -> RuleSet:
        """The rules as they were read last."""
        return self._known.get((org_id, signal)) or RuleSet(org_id, signal, 0)


def rule_set(org_id: uuid.UUID, signal: str, version: int, rules: Sequence[StoredRule]) -> RuleSet:
    return RuleSet(
        org_id,
        signal,
        version,
        tuple(
            RuleVersion(
                each.rule_id,
                each.version,
                from_document(each.name, each.definition),
                each.since_version,
                each.created_at.timestamp(),
            )
            for each in rules
        ),
    )


def rules_used(signal: str, evaluations: Sequence[tuple[int, Evaluation]]) -> RulesUsed | None:
    """What the commit of an item must know of the rules; None if no task had any."""
    versions = {version for version, _ in evaluations if version}
    if not versions:
        return None
    rule_ids = sorted({rule_id for _, each in evaluations for rule_id in each.rule_ids})
    sketches: dict[tuple[int, int], list[bytes]] = {}
    for _, evaluation in evaluations:
        for made in evaluation.series:
            sketches.setdefault((made.rule_id, made.day), []).append(made.sketch)
    series = [SeriesOfDay(rule_id, day, union(some)) for (rule_id, day), some in sketches.items()]
    return RulesUsed(signal, min(versions), rule_ids, series)


def failed_holes(signal: str, evaluations: Sequence[Evaluation]) -> list[Hole]:
    return [
        Hole(signal, trouble.rule_id, trouble.first_ns, trouble.last_ns + 1, trouble.reason)
        for each in evaluations
        for trouble in each.troubles
    ]


def late_holes(
    rules: RuleSet, evaluations: Sequence[Evaluation], intervals: Sequence[int], slot_keep_s: float
) -> list[Hole]:  # fmt: skip
    """Holes where samples may share their time with earlier ones, because the index has forgotten those times."""
    forgotten_ns = int((time.time() - slot_keep_s) * NS_PER_S)
    late = [interval for interval in intervals if (interval + 1) * _STEP_NS < forgotten_ns]
    if not late:
        return []
    used = {rule_id for each in evaluations for rule_id in each.rule_ids}
    old = [each for each in rules.rules if each.rule_id in used and each.created_s * NS_PER_S < forgotten_ns]
    reason = "rows came later than derive.slot_keep_s"
    return [
        Hole(rules.signal, each.rule_id, interval * _STEP_NS, (interval + 1) * _STEP_NS + 1, reason)
        for each in old
        for interval in late
    ]
