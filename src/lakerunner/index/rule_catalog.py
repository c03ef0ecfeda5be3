"""The catalog of materialization rules: which versions of which rules are live, and how they change.

A catalog belongs to an org and a signal, and its version grows with every change. A changed rule is a new version with
an identity of its own; the same change retires the old one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from lakerunner.index.database import Connection
from lakerunner.model.errors import Missing

_COLUMNS = (
    "rule_id, org_id, signal, name, version, group_name, definition, since_version, until_version, created_at,"
    " created_by, retired_at, retired_reason"
)


@dataclass(frozen=True, slots=True)
class StoredRule:
    """One version of a rule."""

    rule_id: int
    org_id: uuid.UUID
    signal: str
    name: str
    #: Counts the versions of the name, from one.
    version: int
    group_name: str
    #: What `rules/stored.py` reads.
    definition: Mapping[str, Any]
    #: The catalog versions in which it is live: from the first to before the second.
    since_version: int
    until_version: int | None
    created_at: datetime
    created_by: str
    retired_at: datetime | None = None
    retired_reason: str | None = None


@dataclass(frozen=True, slots=True)
class NewRule:
    """A rule to store; it replaces the live rule of its name."""

    signal: str
    name: str
    group_name: str
    definition: Mapping[str, Any]


def catalog_version(tx: Connection, org_id: uuid.UUID, signal: str) -> int:
    """The current version; 0 if the org never had a rule of the signal."""
    row = tx.execute(
        "SELECT version FROM rule_catalog WHERE org_id = %s AND signal = %s", [org_id, signal]
    ).fetchone()  # fmt: skip
    return 0 if row is None else int(row["version"])


def live_rules(tx: Connection, org_id: uuid.UUID, signal: str | None = None) -> list[StoredRule]:
    """The rules that are evaluated now, by name."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM materialization_rule WHERE org_id = %(org)s AND until_version IS NULL"  # noqa: S608
        " AND (%(signal)s::text IS NULL OR signal = %(signal)s) ORDER BY name",
        {"org": org_id, "signal": signal},
    ).fetchall()
    return [_stored(row) for row in rows]


def rules_at(tx: Connection, org_id: uuid.UUID, signal: str, version: int) -> list[StoredRule]:
    """The rules of one version of the catalog."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM materialization_rule WHERE org_id = %s AND signal = %s AND since_version <= %s"  # noqa: S608
        " AND (until_version IS NULL OR until_version > %s) ORDER BY name",
        [org_id, signal, version, version],
    ).fetchall()
    return [_stored(row) for row in rows]


def versions_of(tx: Connection, org_id: uuid.UUID, name: str) -> list[StoredRule]:
    """All versions of a rule, the latest first."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM materialization_rule WHERE org_id = %s AND name = %s ORDER BY version DESC",  # noqa: S608
        [org_id, name],
    ).fetchall()
    return [_stored(row) for row in rows]


def find_rule(tx: Connection, org_id: uuid.UUID, name: str) -> StoredRule:
    """The live rule of the name. One of another org does not exist."""
    found = [rule for rule in live_rules(tx, org_id) if rule.name == name]
    if not found:
        raise Missing(f"cannot find the rule {name!r}", hint="see `lakerunner rules list`")
    return found[0]


def change_rules(
    tx: Connection,
    org_id: uuid.UUID,
    put: Sequence[NewRule],
    retire: Iterable[str],
    created_by: str,
    reason: str = "deleted",
) -> list[StoredRule]:
    """Store rules and retire others, by name, in one change; return those stored.

    The live rule of a stored name is retired. The caller deletes the samples that earlier versions left.
    """
    gone = {*retire, *(rule.name for rule in put)}
    lock_catalog(tx, org_id)
    live = {rule.name: rule for rule in live_rules(tx, org_id) if rule.name in gone}
    signals = {rule.signal for rule in put} | {rule.signal for rule in live.values()}
    versions = {signal: _next_version(tx, org_id, signal) for signal in sorted(signals)}
    replaced = {rule.name for rule in put}
    for rule in live.values():
        tx.execute(
            "UPDATE materialization_rule SET until_version = %s, retired_at = now(), retired_reason = %s"
            " WHERE rule_id = %s",
            [versions[rule.signal], "replaced" if rule.name in replaced else reason, rule.rule_id],
        )
    made = []
    for new in put:
        row = tx.execute(
            "INSERT INTO materialization_rule (org_id, signal, name, version, group_name, definition, since_version,"  # noqa: S608
            " created_by) SELECT %s, %s, %s, 1 + coalesce(max(version), 0), %s, %s, %s, %s FROM materialization_rule"
            f" WHERE org_id = %s AND name = %s RETURNING {_COLUMNS}",
            [
                org_id, new.signal, new.name, new.group_name, Jsonb(dict(new.definition)), versions[new.signal],
                created_by, org_id, new.name,
            ],
        ).fetchone()  # fmt: skip
        assert row is not None
        made.append(_stored(row))
    return made


def retire_rule(tx: Connection, org_id: uuid.UUID, rule_id: int, reason: str) -> bool:
    """Retire one version, if it is live."""
    found = [rule for rule in live_rules(tx, org_id) if rule.rule_id == rule_id]
    if found:
        change_rules(tx, org_id, (), [found[0].name], "", reason)
    return bool(found)


def lock_catalog(tx: Connection, org_id: uuid.UUID) -> None:
    """One change of an org at a time."""
    tx.execute("SELECT pg_advisory_xact_lock(hashtextextended('lakerunner-rules ' || %s::text, 0))", [org_id])


def _next_version(tx: Connection, org_id: uuid.UUID, signal: str) -> int:
    row = tx.execute(
        "INSERT INTO rule_catalog (org_id, signal, version) VALUES (%s, %s, 1) ON CONFLICT (org_id, signal)"
        " DO UPDATE SET version = rule_catalog.version + 1, changed_at = now() RETURNING version",
        [org_id, signal],
    ).fetchone()
    assert row is not None
    return int(row["version"])


def _stored(row: DictRow) -> StoredRule:
    return StoredRule(**row)
