"""Stores groups of recording and alerting rules of an org, after the same checks wherever they come from."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from lakerunner.index.database import Connection, Database
from lakerunner.index.rule_catalog import live_rules, lock_catalog
from lakerunner.index.rule_groups import GroupKey, StoredGroup, list_groups, put_group
from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.rules.definitions import Group, Record
from lakerunner.rules.evaluated import GroupLimits, check_groups
from lakerunner.rules.file import read_rules
from lakerunner.rules.render import evaluated_rules, group_text
from lakerunner.runtime.settings import RulerSettings

_MAX_NAMESPACE = 200


@dataclass(frozen=True, slots=True)
class StoredNames:
    """Names of groups: those that were stored, and those that were there already."""

    stored: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


def limits_of(settings: RulerSettings) -> GroupLimits:
    return GroupLimits(settings.max_rules, settings.max_groups, settings.least_interval_s)


def store_groups(
    database: Database,
    org_id: uuid.UUID,
    namespace: str,
    groups: Sequence[Group],
    by: str,
    limits: GroupLimits,
    *,
    dry_run: bool = False,
) -> StoredNames:
    """Check the groups against each other and the org's other ones, and store those that have rules to evaluate."""
    if not namespace or not namespace.isprintable() or len(namespace) > _MAX_NAMESPACE or "/" in namespace:
        raise BadInput(f"cannot use the rule namespace {namespace[:50]!r}", hint="use up to 200 characters, no slash")
    wanted = [group for group in groups if evaluated_rules(group)]
    if not wanted:
        return StoredNames()
    check_groups(wanted, limits)
    with database.transaction() as tx:
        lock_catalog(tx, org_id)
        others = _others(tx, org_id, namespace, {group.name for group in wanted})
        if len(others) + len(wanted) > limits.groups_per_org:
            raise LimitHit(
                f"cannot apply the groups: the org would have {len(others) + len(wanted):,}, more than "
                f"{limits.groups_per_org:,} (ruler.max_groups)",
                hint="delete groups that are not needed",
            )
        check_groups(wanted, limits, [group_of(each) for each in others])
        _refuse_materialized(tx, org_id, wanted)
        stored: list[str] = []
        unchanged: list[str] = []
        for group in wanted:
            key, text = GroupKey(org_id, namespace, group.name), group_text(group)
            if dry_run:
                known = list_groups(tx, org_id, namespace, group.name)
                (unchanged if known and known[0].definition == text else stored).append(group.name)
            else:
                (stored if put_group(tx, key, text, by) else unchanged).append(group.name)
    return StoredNames(tuple(stored), tuple(unchanged))


def group_of(stored: StoredGroup) -> Group:
    return _read(stored.definition)


@lru_cache(maxsize=2_048)
def _read(definition: str) -> Group:
    """Reading a group takes milliseconds, and lists of rules are asked for again and again."""
    (group,) = read_rules(definition)
    return group


def _others(tx: Connection, org_id: uuid.UUID, namespace: str, names: set[str]) -> list[StoredGroup]:
    found = list_groups(tx, org_id)
    return [each for each in found if each.namespace != namespace or each.name not in names]


def _refuse_materialized(tx: Connection, org_id: uuid.UUID, groups: Sequence[Group]) -> None:
    """A recorded series must not mix with one that a materialization rule makes."""
    names = {rule.name for rule in live_rules(tx, org_id)}
    for group in groups:
        for rule in evaluated_rules(group):
            if isinstance(rule, Record) and rule.record in names:
                raise BadInput(f"cannot record {rule.record!r}: a materialization rule has this name")
