"""The recording and alerting rules of a caller's org, for the routes of all dialects, as Prometheus' API shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from lakerunner.index.alert_states import read_states
from lakerunner.index.database import Connection
from lakerunner.index.rule_groups import StoredGroup, delete_groups, list_groups
from lakerunner.model.errors import BadInput, Missing
from lakerunner.query.series.go_format import exponent
from lakerunner.query.series.matchers import Selector
from lakerunner.rules.definitions import Alert, Group, Record
from lakerunner.rules.evaluation.alerting import ActiveAlert, State
from lakerunner.rules.evaluation.rule import RuleState
from lakerunner.rules.evaluation.stored_state import from_json, rule_key
from lakerunner.rules.render import evaluated_rules, group_document
from lakerunner.rules.stored_groups import StoredNames, group_of, limits_of, store_groups
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.params import Params

_NEVER = "0001-01-01T00:00:00Z"
#: States of this many groups are read group by group.
_ONE_BY_ONE = 100
_KINDS = {"": (Record, Alert), "alert": (Alert,), "record": (Record,)}


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """What a request wants to see; empty means everything."""

    kind: str = ""
    names: Sequence[str] = ()
    groups: Sequence[str] = ()
    files: Sequence[str] = ()
    selectors: Sequence[Selector] = ()
    exclude_alerts: bool = False
    group_limit: int = 0
    next_token: str = ""
    #: Only groups of this language.
    language: str = ""

    @classmethod
    def of(cls, params: Params, *, selectors: Sequence[Selector] = (), language: str = "") -> Self:
        """The filter that the parameters of a request describe."""
        return cls(
            params.text("type").lower(),
            params.texts("rule_name[]"),
            params.texts("rule_group[]"),
            params.texts("file[]"),
            selectors,
            params.flag("exclude_alerts"),
            params.count("group_limit"),
            params.text("group_next_token"),
            language,
        )

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise BadInput(f'invalid parameter "type": not supported value "{self.kind[:50]}"')
        if self.next_token and not self.group_limit:
            raise BadInput(
                'invalid parameter "group_next_token": group_limit needs to be present in order to paginate over the '
                "groups"
            )

    def accepts(self, rule: Record | Alert) -> bool:
        if not isinstance(rule, _KINDS[self.kind]):
            return False
        name = rule.record if isinstance(rule, Record) else rule.alert
        if self.names and name not in self.names:
            return False
        return not self.selectors or any(
            all(matcher.matches(rule.labels.get(matcher.name, "")) for matcher in selector)
            for selector in self.selectors
        )


@dataclass(frozen=True, slots=True)
class ShownGroup:
    stored: StoredGroup
    group: Group
    rules: Sequence[tuple[Record | Alert, RuleState]]


class RuleGroups:
    """The groups of a caller's org. Everything here blocks: call it in a thread."""

    def __init__(self, api: Api) -> None:
        self._database = api.service.lake.database
        self._settings = api.ruler

    def store(self, caller: Caller, namespace: str, groups: Sequence[Group]) -> StoredNames:
        limits = limits_of(self._settings)
        return store_groups(self._database, caller.org_id, namespace, groups, f"key {caller.name}", limits)

    def delete(self, caller: Caller, namespace: str, name: str | None = None) -> None:
        with self._database.transaction() as tx:
            delete_groups(tx, caller.org_id, namespace, name)

    def documents(
        self, caller: Caller, namespace: str | None = None, name: str | None = None, language: str = ""
    ) -> dict[str, list[dict[str, Any]]]:
        """Groups as rule files have them, by namespace."""
        with self._database.transaction() as tx:
            found = list_groups(tx, caller.org_id, namespace, name)
        shown: dict[str, list[dict[str, Any]]] = {}
        for each in found:
            group = group_of(each)
            if not language or group.language == language:
                document = group_document(group)
                if language:
                    document.pop("language", None)
                shown.setdefault(each.namespace, []).append(document)
        if not shown:
            raise Missing("no rule groups found" if name is None else "group does not exist")
        return shown

    def rules(self, caller: Caller, wanted: RuleFilter) -> dict[str, Any]:
        """The answer of `/api/v1/rules`."""
        page: list[tuple[StoredGroup, Group]] = []
        next_token = ""
        found_token = not wanted.next_token
        with self._database.transaction() as tx:
            for stored, group in self._chosen(tx, caller, wanted):
                token = _token(stored)
                found_token = found_token or token == wanted.next_token
                if not found_token or not any(map(wanted.accepts, evaluated_rules(group))):
                    continue
                if wanted.group_limit and len(page) == wanted.group_limit:
                    next_token = token
                    break
                page.append((stored, group))
            shown = _with_states(tx, caller, page)
        groups = [
            {
                "name": each.stored.name,
                "file": each.stored.namespace,
                "rules": [self._rule(rule, state, wanted) for rule, state in each.rules if wanted.accepts(rule)],
                "interval": each.group.interval_s or self._settings.interval_s,
                "limit": each.group.limit,
                "evaluationTime": each.stored.duration_s,
                "lastEvaluation": _time(each.stored.evaluated_at_ms),
            }
            for each in shown
        ]
        if not found_token:
            raise BadInput(
                f"invalid parameter \"group_next_token\": invalid group_next_token '{wanted.next_token[:80]}'. "
                "were rule groups changed?"
            )
        return {"groups": groups, **({"groupNextToken": next_token} if next_token else {})}

    def alerts(self, caller: Caller, language: str = "") -> dict[str, Any]:
        """The answer of `/api/v1/alerts`."""
        with self._database.transaction() as tx:
            groups = _with_states(tx, caller, list(self._chosen(tx, caller, RuleFilter(language=language))))
        shown = [
            alert
            for each in groups
            for rule, state in each.rules
            if isinstance(rule, Alert)
            for alert in _active(state)
        ]
        return {"alerts": shown}

    def _chosen(self, tx: Connection, caller: Caller, wanted: RuleFilter) -> Iterator[tuple[StoredGroup, Group]]:
        """The groups that a request names, without what their rules remember."""
        for stored in list_groups(tx, caller.org_id):
            named = not wanted.groups or stored.name in wanted.groups
            if not named or (wanted.files and stored.namespace not in wanted.files):
                continue
            group = group_of(stored)
            if not wanted.language or group.language == wanted.language:
                yield stored, group

    def _rule(self, rule: Record | Alert, state: RuleState, wanted: RuleFilter) -> dict[str, Any]:
        common: dict[str, Any] = {
            "name": rule.record if isinstance(rule, Record) else rule.alert,
            "query": rule.expr,
            "labels": dict(rule.labels),
            "health": state.health,
            "evaluationTime": state.duration_s,
            "lastEvaluation": _time(state.evaluated_at_ms),
        }
        if state.last_error:
            common["lastError"] = state.last_error
        if isinstance(rule, Record):
            return {**common, "type": "recording"}
        return {
            **common,
            "state": _state_of(state),
            "duration": rule.for_s,
            "keepFiringFor": rule.keep_firing_for_s,
            "annotations": dict(rule.annotations),
            "alerts": [] if wanted.exclude_alerts else _active(state),
            "type": "alerting",
        }


def _with_states(tx: Connection, caller: Caller, groups: Sequence[tuple[StoredGroup, Group]]) -> list[ShownGroup]:
    """The groups with what their rules remember. Only theirs is read: an org may have a thousand groups."""
    if len(groups) > _ONE_BY_ONE:
        read = read_states(tx, caller.org_id)
    else:
        read = [
            state for stored, _ in groups for state in read_states(tx, caller.org_id, stored.namespace, stored.name)
        ]
    states = {(each.namespace, each.group_name, each.rule_no): each for each in read}
    found = []
    for stored, group in groups:
        rules = []
        for number, rule in enumerate(evaluated_rules(group)):
            state = states.get((stored.namespace, stored.name, number))
            # The state of a group that was just changed may still be that of its rules before.
            is_its = state is not None and state.rule_key == rule_key(rule)
            rules.append((rule, from_json(state.state) if state is not None and is_its else RuleState()))
        found.append(ShownGroup(stored, group, rules))
    return found


def _state_of(state: RuleState) -> str:
    states = {alert.state for alert in state.alerts}
    if state.evaluated_at_ms is None:
        return "unknown"
    return next((each.value for each in (State.FIRING, State.PENDING) if each in states), State.INACTIVE.value)


def _active(state: RuleState) -> list[dict[str, Any]]:
    return [_alert(alert) for alert in state.alerts if alert.state is not State.INACTIVE]


def _alert(alert: ActiveAlert) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "state": alert.state.value,
        "activeAt": _time(alert.active_at_ms),
        "value": exponent(alert.value),
    }
    if alert.keep_firing_since_ms is not None:
        shown["keepFiringSince"] = _time(alert.keep_firing_since_ms)
    return shown


def _time(time_ms: int | None) -> str:
    if time_ms is None:
        return _NEVER
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _token(stored: StoredGroup) -> str:
    return hashlib.sha256(f"{stored.namespace};{stored.name}".encode()).hexdigest()[:40]
