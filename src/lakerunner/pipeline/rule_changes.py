"""Applies rule files to the catalog of an org: which rules are new, changed, unchanged or retired, in one transaction.

A group of a file is the whole truth about that group: its rules that the file does not name are retired. What earlier
versions of a rule stored is deleted by the same transaction, so samples of two versions never mix.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection, Database
from lakerunner.index.rule_catalog import (
    NewRule,
    StoredRule,
    change_rules,
    find_rule,
    live_rules,
    lock_catalog,
    versions_of,
)
from lakerunner.index.rule_clashes import record_possible_clashes, segments_naming
from lakerunner.model.errors import Conflict, LimitHit
from lakerunner.model.signals import METRICS
from lakerunner.model.time import MAX_TIME_NS
from lakerunner.pipeline.delete.request import request_deletion
from lakerunner.query.deletable import deletion_request
from lakerunner.rules.check import require_valid
from lakerunner.rules.definitions import Group, Materialize
from lakerunner.rules.stored import to_document


@dataclass(frozen=True, slots=True)
class Applied:
    """Names of rules, by what became of them."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()


def apply_groups(
    database: Database,
    org_id: uuid.UUID,
    groups: Sequence[Group],
    created_by: str,
    *,
    max_rules: int,
    dry_run: bool = False,
) -> Applied:
    """Check the groups and store their materialization rules."""
    require_valid(groups)
    with database.transaction() as tx:
        lock_catalog(tx, org_id)
        live = {rule.name: rule for rule in live_rules(tx, org_id)}
        applied, put = _compared(groups, live)
        left = len(live) + len(applied.added) - len(applied.retired)
        if left > max_rules:
            raise LimitHit(
                f"cannot apply the rules: the org would have {left}, more than {max_rules} (derive.max_rules)",
                hint="delete rules that are not needed, or raise the limit",
            )
        had = {new.name for new in put if versions_of(tx, org_id, new.name)}
        _refuse_native(tx, org_id, [new.name for new in put if new.name not in had])
        if dry_run or not (put or applied.retired):
            return applied
        made = change_rules(tx, org_id, put, applied.retired, created_by)
        record_possible_clashes(tx, org_id, made)
        if had:
            _delete_samples(database, tx, org_id, sorted(had), created_by)
    return applied


def renew_rule(database: Database, org_id: uuid.UUID, name: str, created_by: str) -> StoredRule:
    """Begin a rule anew, as a version without holes that has seen nothing yet. What it stored is deleted."""
    with database.transaction() as tx:
        lock_catalog(tx, org_id)
        old = find_rule(tx, org_id, name)
        put = [NewRule(old.signal, old.name, old.group_name, old.definition)]
        made = change_rules(tx, org_id, put, (), created_by)
        record_possible_clashes(tx, org_id, made)
        _delete_samples(database, tx, org_id, [name], created_by)
    return made[0]


def delete_rule(database: Database, org_id: uuid.UUID, name: str) -> StoredRule:
    """Retire a rule. What it stored stays, and expires as other metrics do."""
    with database.transaction() as tx:
        lock_catalog(tx, org_id)
        found = find_rule(tx, org_id, name)
        change_rules(tx, org_id, (), [name], "")
    return found


def _compared(groups: Sequence[Group], live: dict[str, StoredRule]) -> tuple[Applied, list[NewRule]]:
    added, changed, unchanged = [], [], []
    put: list[NewRule] = []
    named = {group.name for group in groups}
    for group in groups:
        for rule in group.materialized:
            document, old = to_document(rule), live.get(rule.name)
            if old is not None and old.group_name != group.name and old.group_name not in named:
                raise _conflict(rule, f"the group {old.group_name!r} has a rule of this name")
            if old is None:
                added.append(rule.name)
            elif dict(old.definition) != document:
                changed.append(rule.name)
            elif old.group_name == group.name:
                unchanged.append(rule.name)
                continue
            else:
                changed.append(rule.name)
            put.append(NewRule(rule.signal, rule.name, group.name, document))
    kept = {*added, *changed, *unchanged}
    retired = [name for name, rule in live.items() if rule.group_name in named and name not in kept]
    return Applied(tuple(added), tuple(changed), tuple(unchanged), tuple(retired)), put


def _conflict(rule: Materialize, reason: str) -> Exception:
    return Conflict(f"cannot apply the rule {rule.name}: {reason}") if rule.source is None else rule.source.error(
        "materialize", reason
    )  # fmt: skip


def _refuse_native(tx: Connection, org_id: uuid.UUID, names: Sequence[str]) -> None:
    found = segments_naming(tx, org_id, names)
    for name, segment_id in found.items():
        raise Conflict(
            f"cannot apply the rule {name}: the lake has a metric of this name, for example in segment {segment_id}",
            hint="choose another name",
        )


def _delete_samples(database: Database, tx: Connection, org_id: uuid.UUID, names: list[str], created_by: str) -> None:
    """Hide what earlier versions stored, from this transaction on; the stage `delete` removes it."""
    selector = '{__name__=~"' + "|".join(names) + '"}'
    request, may_hold = deletion_request(database, org_id, METRICS.name, selector, 0, MAX_TIME_NS, created_by)
    request_deletion(tx, request, 0.0, may_hold, makes_holes=False)
