"""Groups of recording and alerting rules: stored per org and namespace, as the text that was given."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lakerunner.index.database import Connection
from lakerunner.index.ended_groups import keep_ended
from lakerunner.model.errors import Missing

_COLUMNS = (
    "org_id, namespace, name, definition, version, changed_at, changed_by, evaluated_at_ms, partial_at_ms,"
    " partial_batches, evaluations, missed, duration_s"
)


@dataclass(frozen=True, slots=True)
class GroupKey:
    org_id: uuid.UUID
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group, and how far it was evaluated."""

    org_id: uuid.UUID
    namespace: str
    name: str
    #: A rule file with this one group.
    definition: str
    version: int
    changed_at: datetime
    changed_by: str
    evaluated_at_ms: int | None
    partial_at_ms: int | None
    partial_batches: int
    evaluations: int
    missed: int
    duration_s: float

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.org_id, self.namespace, self.name)


def put_group(tx: Connection, key: GroupKey, definition: str, by: str) -> bool:
    """Store a group in place of the one of its name; return False when it is there already."""
    known = tx.execute(
        "SELECT definition FROM rule_group WHERE org_id = %s AND namespace = %s AND name = %s FOR UPDATE",
        [key.org_id, key.namespace, key.name],
    ).fetchone()
    if known is not None and known["definition"] != definition:
        keep_ended(tx, key.org_id, key.namespace, key.name)
    done = tx.execute(
        "INSERT INTO rule_group (org_id, namespace, name, definition, changed_by) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT (org_id, namespace, name) DO UPDATE SET definition = excluded.definition,"
        " changed_by = excluded.changed_by, changed_at = now(), version = rule_group.version + 1,"
        " partial_at_ms = NULL, partial_batches = 0 WHERE rule_group.definition <> excluded.definition",
        [key.org_id, key.namespace, key.name, definition, by],
    )
    return done.rowcount == 1


def delete_groups(tx: Connection, org_id: uuid.UUID, namespace: str, name: str | None = None) -> int:
    """Delete one group, or all of a namespace. A group of another org does not exist."""
    keep_ended(tx, org_id, namespace, name)
    done = tx.execute(
        "DELETE FROM rule_group WHERE org_id = %(org)s AND namespace = %(namespace)s"
        " AND (%(name)s::text IS NULL OR name = %(name)s)",
        {"org": org_id, "namespace": namespace, "name": name},
    )
    if not done.rowcount:
        what = f"the rule namespace {namespace!r}" if name is None else f"the rule group {name!r} in {namespace!r}"
        raise Missing(f"cannot delete {what}: it does not exist", hint="see `lakerunner rules list`")
    return done.rowcount


def list_groups(
    tx: Connection, org_id: uuid.UUID, namespace: str | None = None, name: str | None = None
) -> list[StoredGroup]:
    """The org's groups, by namespace and name."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM rule_group WHERE org_id = %(org)s"  # noqa: S608
        " AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)"
        " AND (%(name)s::text IS NULL OR name = %(name)s) ORDER BY namespace, name",
        {"org": org_id, "namespace": namespace, "name": name},
    ).fetchall()
    return [StoredGroup(**row) for row in rows]


def group_versions(tx: Connection) -> dict[GroupKey, int]:
    """The version of every group of every org: cheap to ask for again and again."""
    rows = tx.execute("SELECT org_id, namespace, name, version FROM rule_group").fetchall()
    return {GroupKey(row["org_id"], row["namespace"], row["name"]): row["version"] for row in rows}


def load_groups(tx: Connection, keys: Sequence[GroupKey]) -> list[StoredGroup]:
    """Those of the groups that exist."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM rule_group WHERE (org_id, namespace, name) IN"  # noqa: S608
        " (SELECT * FROM unnest(%s::uuid[], %s::text[], %s::text[]))",
        [[key.org_id for key in keys], [key.namespace for key in keys], [key.name for key in keys]],
    ).fetchall()
    return [StoredGroup(**row) for row in rows]
