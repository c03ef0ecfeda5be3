"""A group as one ruler holds it: its rules, what they remember, and how one evaluation is done and stored."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from lakerunner.bus.announce import segments_made
from lakerunner.index.alert_states import RuleEvaluation, StoredState, commit_evaluation, forget_sent, put_sent
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.leases import Lease
from lakerunner.index.rule_groups import GroupKey, StoredGroup
from lakerunner.index.work import WorkItem
from lakerunner.model.errors import Conflict
from lakerunner.model.ids import hashed_id
from lakerunner.model.signals import METRICS
from lakerunner.ruler.metrics import SAMPLES
from lakerunner.ruler.results import Written, write_results
from lakerunner.rules.definitions import Alert, Group, Record
from lakerunner.rules.evaluation.rule import BAD, RuleState, Surroundings, evaluate_rule
from lakerunner.rules.evaluation.stored_state import from_json, rule_key, to_json
from lakerunner.rules.evaluation.vector import Ask
from lakerunner.rules.file import read_rules
from lakerunner.rules.reads import Reads, reads_of
from lakerunner.rules.render import evaluated_rules
from lakerunner.runtime.crash import crash_point
from lakerunner.store.object_store import ObjectStore

#: Name of the stage on the work items of evaluations.
STAGE = "rules"
#: Gives the function that asks queries of a language.
AskIn = Callable[[str], Ask]
#: Receiver -> alert (its labels as JSON) -> state, start and when it was sent, in milliseconds.
Sent = dict[str, dict[str, list[object]]]


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """What an evaluation needs besides its group and time: whom it asks, where it stores, and what bounds it."""

    ask_in: AskIn
    database: Database
    store: ObjectStore
    series_key: bytes
    surroundings: Surroundings
    #: Must still be held when results are stored. None is not checked.
    lease: Lease | None


@dataclass(slots=True)
class RunningGroup:
    """Used by one thread at a time."""

    key: GroupKey
    version: int
    group: Group
    rules: list[Record | Alert]
    reads: list[Reads]
    states: list[RuleState]
    sent: list[Sent]
    evaluated_at_ms: int | None
    partial_at_ms: int | None
    partial_batches: int
    _keys: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, stored: StoredGroup, states: Sequence[StoredState]) -> Self:
        """The group with the states of those of its rules that it had before."""
        (group,) = read_rules(stored.definition)
        rules = evaluated_rules(group)
        keys = [rule_key(rule) for rule in rules]
        left = list(states)
        found: list[StoredState | None] = []
        for number, key in enumerate(keys):
            same = [each for each in left if each.rule_key == key]
            # The one at the same place, else the first with the same name and labels.
            chosen = next((each for each in same if each.rule_no == number), same[0] if same else None)
            if chosen is not None:
                left.remove(chosen)
            found.append(chosen)
        return cls(
            stored.key,
            stored.version,
            group,
            rules,
            [reads_of(rule) for rule in rules],
            [RuleState() if each is None else from_json(each.state) for each in found],
            [{} if each is None else _sent(each.sent) for each in found],
            stored.evaluated_at_ms,
            stored.partial_at_ms,
            stored.partial_batches,
            keys,
        )

    @property
    def signals(self) -> frozenset[str]:
        return frozenset(signal for reads in self.reads for signal in reads.signals)

    @property
    def results(self) -> int:
        """Series and alerts that its rules keep in memory."""
        return sum(state.results for state in self.states)

    @property
    def reads_rows(self) -> bool:
        return not self.signals <= {METRICS.name}

    def alert_metrics(self) -> frozenset[str] | None:
        """Metrics that alerts of the group read; None if that is not known."""
        found: set[str] = set()
        for rule, reads in zip(self.rules, self.reads, strict=True):
            if isinstance(rule, Alert):
                if reads.metrics is None:
                    return None
                found |= reads.metrics
        return frozenset(found)

    def batches(self) -> list[list[int]]:
        """The numbers of the rules, cut where one reads what another of its batch records."""
        batches: list[list[int]] = [[]]
        recorded: set[str] = set()
        for number, (rule, reads) in enumerate(zip(self.rules, self.reads, strict=True)):
            depends = "metrics" in reads.signals and (
                bool(recorded) if reads.metrics is None else bool(recorded & reads.metrics)
            )
            if depends:
                batches.append([])
                recorded = set()
            batches[-1].append(number)
            recorded |= {rule.record} if isinstance(rule, Record) else {"ALERTS", "ALERTS_FOR_STATE"}
        return batches

    def evaluate(self, at_ms: int, missed: int, context: EvaluationContext) -> bool:
        """Evaluate all rules in their order at one time, and store the results batch by batch.

        Returns whether every rule succeeded. Raises a Conflict when another process has the group, or it was changed.
        """
        batches = self.batches()
        first = self.partial_batches if self.partial_at_ms == at_ms else 0
        for batch in range(first, len(batches)):
            is_last = batch == len(batches) - 1
            self._evaluate_batch(batches[batch], batch, is_last, at_ms, missed if batch == first else 0, context)
        return all(state.health != BAD for state in self.states)

    def _evaluate_batch(
        self,
        numbers: Sequence[int],
        batch: int,
        is_last: bool,
        at_ms: int,
        missed: int,
        context: EvaluationContext,
    ) -> None:
        began_s = time.monotonic()
        surroundings = context.surroundings
        offset_ms = round((self.group.query_offset_s or 0.0) * 1000)
        states: dict[int, RuleState] = {}
        written: list[Written] = []
        for number in numbers:
            rule = self.rules[number]
            around = surroundings
            if surroundings.left is not None:
                others = sum(states.get(at, state).results for at, state in enumerate(self.states) if at != number)
                around = replace(surroundings, left=surroundings.left - others)
            outcome = evaluate_rule(
                self.group, rule, self.states[number], at_ms, context.ask_in(rule.language), around, offset_ms
            )
            states[number] = outcome.state
            name = rule.record if isinstance(rule, Record) else rule.alert
            described = f"By the rule {name} of the group {self.group.name}."
            written.append(Written(outcome.samples, outcome.ended, at_ms - offset_ms, described))
        segments = write_results(self.key.org_id, written, context.store, context.series_key)
        crash_point("ruler_after_write")
        evaluation = RuleEvaluation(
            self.key,
            self.version,
            self.evaluated_at_ms,
            self.partial_at_ms,
            self.partial_batches,
            at_ms,
            is_last,
            [(number, self._keys[number], to_json(state)) for number, state in states.items()],
            missed,
            time.monotonic() - began_s,
            context.lease,
        )
        if segments:
            parts = (self.key.org_id.bytes, self.key.namespace.encode(), self.key.name.encode())
            item_id = hashed_id(STAGE.encode(), *parts, *(str(each).encode() for each in (self.version, at_ms, batch)))
            item = WorkItem(item_id, STAGE, self.key.org_id, METRICS.name, {"group": self.key.name})
            result = ItemResult(
                item_id, made=segments, follow_ups=segments_made(segments), rule_evaluation=evaluation, item=item
            )
            done = commit_item(context.database, result) is Outcome.COMMITTED
        else:
            done = commit_evaluation(context.database, evaluation)
        if not done:
            raise Conflict(f"cannot store an evaluation of {self.key.name!r}: it was changed or evaluated meanwhile")
        SAMPLES.inc(sum(segment.row_count for segment in segments))
        for number, state in states.items():
            self.states[number] = state
        if is_last:
            self.evaluated_at_ms, self.partial_at_ms, self.partial_batches = at_ms, None, 0
        else:
            again = self.partial_at_ms == at_ms
            self.partial_at_ms, self.partial_batches = at_ms, self.partial_batches + 1 if again else 1

    def store_sent(self, database: Database, number: int, lease: Lease | None) -> None:
        """Store what was sent to receivers of a rule's alerts. Conflict if another ruler has the group by now."""
        with database.transaction() as tx:
            sent = json.dumps(self.sent[number])
            put_sent(tx, self.key, self.version, number, self._keys[number], sent, lease)

    def notify_again(self, database: Database, receiver: str, alerts: Sequence[tuple[int, str]]) -> None:
        """Make the ruler that has the group by now notify the receiver again of alerts (number of the rule, name)."""
        with database.transaction() as tx:
            forget_sent(tx, self.key, receiver, [(self._keys[number], name) for number, name in alerts])


def _sent(stored: Mapping[str, Mapping[str, Sequence[object]]]) -> Sent:
    return {receiver: {alert: list(last) for alert, last in each.items()} for receiver, each in stored.items()}
