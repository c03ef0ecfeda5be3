"""What rules remember: stored with each evaluation, in the transaction that makes its samples visible.

So an evaluation happened whole or not at all, whenever the ruler dies, and a successor goes on where it ended.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection, Database
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.rule_groups import GroupKey
from lakerunner.runtime.crash import crash_point


@dataclass(frozen=True, slots=True)
class StoredState:
    namespace: str
    group_name: str
    rule_no: int
    rule_key: str
    #: JSON (`rules/evaluation/stored_state.py`).
    state: Mapping[str, object]
    #: Receiver -> alert -> what was sent to it last.
    sent: Mapping[str, Mapping[str, Sequence[object]]]


@dataclass(frozen=True, slots=True)
class RuleEvaluation:
    """A batch of rules of a group, evaluated at one time."""

    key: GroupKey
    #: The version that was evaluated, and where it stood before.
    version: int
    evaluated_at_ms: int | None
    partial_at_ms: int | None
    partial_batches: int
    at_ms: int
    #: Whether this batch completes the evaluation at its time.
    is_last: bool
    #: Number, key and state (as JSON) of each rule.
    states: Sequence[tuple[int, str, str]]
    #: Evaluations that were skipped before this one.
    missed: int = 0
    duration_s: float = 0.0
    lease: Lease | None = None


def apply_evaluation(tx: Connection, evaluation: RuleEvaluation) -> bool:
    """Store the states and how far the group is; False when it was changed or evaluated meanwhile."""
    if evaluation.lease is not None:
        require_held(tx, evaluation.lease)
    key = evaluation.key
    done = tx.execute(
        "UPDATE rule_group SET evaluated_at_ms = CASE WHEN %(last)s THEN %(at)s ELSE evaluated_at_ms END,"
        " partial_at_ms = CASE WHEN %(last)s THEN NULL ELSE %(at)s END,"
        " partial_batches = CASE WHEN %(last)s THEN 0 WHEN partial_at_ms = %(at)s THEN partial_batches + 1 ELSE 1 END,"
        " evaluations = evaluations + %(last)s::int, missed = missed + %(missed)s, duration_s = %(duration)s"
        " WHERE org_id = %(org)s AND namespace = %(namespace)s AND name = %(name)s AND version = %(version)s"
        " AND evaluated_at_ms IS NOT DISTINCT FROM %(before)s AND partial_at_ms IS NOT DISTINCT FROM %(partial)s"
        " AND partial_batches = %(batches)s",
        {
            "last": evaluation.is_last,
            "at": evaluation.at_ms,
            "missed": evaluation.missed,
            "duration": evaluation.duration_s,
            "org": key.org_id,
            "namespace": key.namespace,
            "name": key.name,
            "version": evaluation.version,
            "before": evaluation.evaluated_at_ms,
            "partial": evaluation.partial_at_ms,
            "batches": evaluation.partial_batches,
        },
    )
    if done.rowcount != 1:
        return False
    numbers, rule_keys, states = zip(*evaluation.states, strict=True) if evaluation.states else ((), (), ())
    tx.execute(
        "INSERT INTO rule_state (org_id, namespace, group_name, rule_no, rule_key, state)"
        " SELECT %s, %s, %s, s.* FROM unnest(%s::int[], %s::text[], %s::text[]::json[]) AS s"
        " ON CONFLICT (org_id, namespace, group_name, rule_no) DO UPDATE SET state = excluded.state,"
        " rule_key = excluded.rule_key,"
        " told = CASE WHEN rule_state.rule_key = excluded.rule_key THEN rule_state.told ELSE '{}' END",
        [key.org_id, key.namespace, key.name, list(numbers), list(rule_keys), list(states)],
    )
    return True


def commit_evaluation(database: Database, evaluation: RuleEvaluation) -> bool:
    """Store an evaluation that made no samples."""
    crash_point("ruler_before_commit")
    with database.transaction() as tx:
        done = apply_evaluation(tx, evaluation)
    crash_point("ruler_after_commit")
    return done


def replace_states(tx: Connection, key: GroupKey, states: Sequence[tuple[int, str, str, str]]) -> None:
    """Store the states of a changed group in its new order: number, key, state and what was sent of each rule."""
    where = [key.org_id, key.namespace, key.name]
    tx.execute("DELETE FROM rule_state WHERE org_id = %s AND namespace = %s AND group_name = %s", where)
    for number, rule_key, state, sent in states:
        tx.execute(
            "INSERT INTO rule_state (org_id, namespace, group_name, rule_no, rule_key, state, told)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [*where, number, rule_key, state, sent],
        )


def put_sent(
    tx: Connection, key: GroupKey, version: int, rule_no: int, rule_key: str, sent: str, lease: Lease | None = None
) -> None:
    """Store what was sent to receivers of a rule's alerts. A ruler that lost the group must not.

    Nothing is stored if the group has another version by now: the ruler loads it anew, with what is stored.
    """
    if lease is not None:
        require_held(tx, lease)
    tx.execute(
        "WITH current AS (SELECT FROM rule_group WHERE org_id = %(org)s AND namespace = %(namespace)s"
        " AND name = %(name)s AND version = %(version)s FOR SHARE)"
        " UPDATE rule_state SET told = %(sent)s WHERE org_id = %(org)s AND namespace = %(namespace)s"
        " AND group_name = %(name)s AND rule_no = %(rule_no)s AND rule_key = %(rule_key)s"
        " AND EXISTS (SELECT FROM current)",
        {
            "org": key.org_id,
            "namespace": key.namespace,
            "name": key.name,
            "version": version,
            "sent": sent,
            "rule_no": rule_no,
            "rule_key": rule_key,
        },
    )


def forget_sent(tx: Connection, key: GroupKey, receiver: str, alerts: Sequence[tuple[str, str]]) -> None:
    """Make the ruler of the group load it anew, and notify the receiver of these alerts (rule key and name) again."""
    where = [key.org_id, key.namespace, key.name]
    tx.execute("UPDATE rule_group SET version = version + 1 WHERE org_id = %s AND namespace = %s AND name = %s", where)
    for rule_key, name in alerts:
        tx.execute(
            "UPDATE rule_state SET told = (told::jsonb #- %s::text[])::json"
            " WHERE org_id = %s AND namespace = %s AND group_name = %s AND rule_key = %s",
            [[receiver, name], *where, rule_key],
        )


def read_states(
    tx: Connection, org_id: uuid.UUID, namespace: str | None = None, name: str | None = None
) -> list[StoredState]:
    """The states of an org's rules, in the order of their groups."""
    rows = tx.execute(
        "SELECT namespace, group_name, rule_no, rule_key, state, told AS sent FROM rule_state WHERE org_id = %(org)s"
        " AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)"
        " AND (%(name)s::text IS NULL OR group_name = %(name)s) ORDER BY namespace, group_name, rule_no",
        {"org": org_id, "namespace": namespace, "name": name},
    ).fetchall()
    return [StoredState(**row) for row in rows]
