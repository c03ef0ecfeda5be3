"""Groups that were deleted or changed while their alerts fired: receivers are notified that these are over.

An ended group is held like any other, but never evaluated: its alerts are over since the moment it ended. A rule that
its group still has after a change goes on there and is left out here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lakerunner.index import ended_groups
from lakerunner.index.alert_states import StoredState
from lakerunner.index.database import Connection, Database
from lakerunner.index.leases import Lease
from lakerunner.index.rule_groups import GroupKey, StoredGroup, load_groups
from lakerunner.model.errors import LakeError
from lakerunner.ruler.group import RunningGroup
from lakerunner.ruler.shards import shard_of
from lakerunner.rules.definitions import Alert
from lakerunner.rules.evaluation.alerting import RESOLVED_KEEP_MS, State
from lakerunner.rules.evaluation.rule import RuleState
from lakerunner.rules.evaluation.stored_state import rule_key
from lakerunner.rules.render import evaluated_rules
from lakerunner.rules.stored_groups import group_of
from lakerunner.runtime.telemetry import log

#: A receiver that was down for longer is not notified any more.
_KEEP_MS = 3_600_000


@dataclass(slots=True)
class EndedRunningGroup(RunningGroup):
    ended_id: int = 0
    ended_at_ms: int = 0

    def store_sent(self, database: Database, number: int, lease: Lease | None) -> None:
        with database.transaction() as tx:
            ended_groups.put_ended_sent(tx, self.ended_id, number, json.dumps(self.sent[number]), lease)

    def notify_again(self, database: Database, receiver: str, alerts: Sequence[tuple[int, str]]) -> None:
        """All rulers say the same of an ended group: its alerts are over."""

    def is_done(self, receivers: Sequence[str], now_ms: int) -> bool:
        """Whether nobody needs to be notified any more. An Alertmanager is notified for a while, as of any end."""
        age_ms = now_ms - self.ended_at_ms
        if age_ms > _KEEP_MS:
            return True
        if any(name.startswith("alertmanager") for name in receivers) and age_ms <= RESOLVED_KEEP_MS:
            return False
        return all(
            sent.get(receiver, {}).get(alert.labels.to_json().decode(), [""])[0] == State.INACTIVE.value
            for state, sent in zip(self.states, self.sent, strict=True)
            for alert in state.alerts
            for receiver in receivers
        )


class EndedGroups:
    """Those of this ruler's shards. Refreshed by one thread, and read by those of receivers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held: dict[int, EndedRunningGroup] = {}

    def groups(self) -> list[RunningGroup]:
        return list(self._held.values())

    def refresh(self, shards: Collection[int], receivers: Sequence[str]) -> None:
        now_ms = time.time_ns() // 1_000_000
        with self._database.transaction() as tx:
            ids = ended_groups.ended_ids(tx)
            loaded = ended_groups.load_ended(tx, ids - self._held.keys()) if ids - self._held.keys() else []
            held = {number: group for number, group in self._held.items() if number in ids}
            for each in loaded:
                if shard_of(GroupKey(each.org_id, each.namespace, each.name)) in shards:
                    held[each.ended_id] = _running(tx, each)
            held = {number: group for number, group in held.items() if shard_of(group.key) in shards}
            done = {number for number, group in held.items() if group.is_done(receivers, now_ms)}
            if done:
                ended_groups.drop_ended(tx, done)
        self._held = {number: group for number, group in held.items() if number not in done}


def _running(tx: Connection, ended: ended_groups.EndedGroup) -> EndedRunningGroup:
    key = GroupKey(ended.org_id, ended.namespace, ended.name)
    stored = StoredGroup(
        key.org_id, key.namespace, key.name, ended.definition, 0, datetime.now(UTC), "", None, None, 0, 0, 0, 0.0
    )
    states = [
        StoredState(key.namespace, key.name, each["rule_no"], each["rule_key"], each["state"], each["told"])
        for each in ended.states
    ]
    try:
        group = EndedRunningGroup.of(stored, states)
        living = [rule_key(rule) for current in load_groups(tx, [key]) for rule in evaluated_rules(group_of(current))]
    except (LakeError, ValueError) as error:
        log().error("ended group not readable", group=key.name, org=str(key.org_id), error=str(error))
        group, living = EndedRunningGroup.of(replace(stored, definition="groups: [{name: ended}]"), []), []
    group.ended_id, group.ended_at_ms = ended.ended_id, ended.ended_at_ms
    for number, rule in enumerate(group.rules):
        goes_on = rule_key(rule) in living
        if goes_on:
            living.remove(rule_key(rule))
        group.states[number] = _over(group.states[number], goes_on or not isinstance(rule, Alert), ended.ended_at_ms)
    return group


def _over(state: RuleState, forget: bool, ended_at_ms: int) -> RuleState:
    alerts = tuple(
        alert
        if alert.state is State.INACTIVE
        else replace(alert, state=State.INACTIVE, resolved_at_ms=ended_at_ms, keep_firing_since_ms=None)
        for alert in state.alerts
        if alert.state is not State.PENDING and not forget
    )
    return replace(state, alerts=alerts)
