"""Groups that ended while their alerts fired: kept until receivers know that those alerts are over."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakerunner.index.database import Connection
from lakerunner.index.leases import Lease, require_held


@dataclass(frozen=True, slots=True)
class EndedGroup:
    """A group as it was before it was deleted or changed."""

    ended_id: int
    org_id: uuid.UUID
    namespace: str
    name: str
    definition: str
    #: Objects with `rule_no`, `rule_key`, `state` and `told`, which is what was sent to receivers.
    states: Sequence[Mapping[str, Any]]
    ended_at_ms: int


def keep_ended(tx: Connection, org_id: uuid.UUID, namespace: str, name: str | None) -> None:
    """Keep the groups that are about to be deleted or changed, if receivers may know their alerts."""
    tx.execute(
        "INSERT INTO ended_group (org_id, namespace, name, definition, states, ended_at_ms)"
        " SELECT g.org_id, g.namespace, g.name, g.definition, json_agg(json_build_object('rule_no', s.rule_no,"
        " 'rule_key', s.rule_key, 'state', s.state, 'told', s.told) ORDER BY s.rule_no),"
        " (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        " FROM rule_group g JOIN rule_state s ON s.org_id = g.org_id AND s.namespace = g.namespace"
        " AND s.group_name = g.name WHERE g.org_id = %(org)s AND g.namespace = %(namespace)s"
        " AND (%(name)s::text IS NULL OR g.name = %(name)s) GROUP BY g.org_id, g.namespace, g.name"
        " HAVING bool_or(EXISTS (SELECT FROM json_array_elements(s.state->'alerts') a"
        " WHERE a->>'state' <> 'pending'))",
        {"org": org_id, "namespace": namespace, "name": name},
    )


def ended_ids(tx: Connection) -> set[int]:
    """Cheap to ask for again and again: there are few."""
    return {row["ended_id"] for row in tx.execute("SELECT ended_id FROM ended_group").fetchall()}


def load_ended(tx: Connection, ids: Collection[int]) -> list[EndedGroup]:
    rows = tx.execute(
        "SELECT ended_id, org_id, namespace, name, definition, states, ended_at_ms FROM ended_group"
        " WHERE ended_id = ANY(%s) ORDER BY ended_id",
        [list(ids)],
    ).fetchall()
    return [EndedGroup(**row) for row in rows]


def put_ended_sent(tx: Connection, ended_id: int, rule_no: int, sent: str, lease: Lease | None) -> None:
    """Store what was sent to receivers of a rule's alerts."""
    if lease is not None:
        require_held(tx, lease)
    tx.execute(
        "UPDATE ended_group SET states = (SELECT json_agg(CASE WHEN (s->>'rule_no')::int = %s"
        " THEN (s::jsonb || jsonb_build_object('told', %s::jsonb))::json ELSE s END)"
        " FROM json_array_elements(states) s) WHERE ended_id = %s",
        [rule_no, sent, ended_id],
    )


def drop_ended(tx: Connection, ids: Collection[int]) -> None:
    tx.execute("DELETE FROM ended_group WHERE ended_id = ANY(%s)", [list(ids)])
