"""Evaluates one rule at one time: asks its expression, and makes samples and the rule's next state of the answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakerunner.model.errors import LakeError
from lakerunner.model.labels import LabelSet
from lakerunner.rules.definitions import Alert, Group, Record
from lakerunner.rules.evaluation.alerting import ActiveAlert, AlertRule, LimitExceeded, step
from lakerunner.rules.evaluation.recording import record
from lakerunner.rules.evaluation.template import Scope, expand
from lakerunner.rules.evaluation.vector import Ask, RuleError, Sample

UNKNOWN, GOOD, BAD = "unknown", "ok", "err"
#: Characters of an error that are kept.
_MAX_ERROR = 2_000


@dataclass(frozen=True, slots=True)
class RuleState:
    """What a rule remembers from one evaluation to the next."""

    alerts: tuple[ActiveAlert, ...] = ()
    #: Series that the last evaluation wrote; those that the next one does not write are marked stale.
    series: frozenset[LabelSet] = frozenset()
    health: str = UNKNOWN
    last_error: str = ""
    #: What the last evaluation missed, if anything.
    warning: str = ""
    evaluated_at_ms: int | None = None
    duration_s: float = 0.0

    @property
    def results(self) -> int:
        """Series and alerts that it keeps in memory."""
        return len(self.series) + len(self.alerts)


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """The next state, the samples to write, and the series that ended."""

    state: RuleState
    samples: tuple[Sample, ...] = ()
    ended: tuple[LabelSet, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is the same for all rules of an evaluation."""

    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""
    #: Series and alerts that a rule may make where its group sets no limit; 0: any number.
    max_results: int = 0
    #: Series and alerts that all rules of the org may have, and how many of them are left for a rule; None: any number.
    org_results: int = 0
    left: int | None = None


def evaluate_rule(
    group: Group,
    rule: Record | Alert,
    state: RuleState,
    at_ms: int,
    ask: Ask,
    surroundings: Surroundings | None = None,
    offset_ms: int = 0,
) -> RuleOutcome:
    """Evaluate the rule at `at_ms`; its expression is asked, and its samples stand, `offset_ms` before that.

    A rule that fails writes nothing, keeps its state, and says why.
    """
    surroundings = surroundings or Surroundings()
    began_s = time.monotonic()
    try:
        samples, alerts = _evaluated(group, rule, state, at_ms, ask, surroundings, offset_ms)
        if surroundings.left is not None and len(samples) + len(alerts) > surroundings.left:
            most = surroundings.org_results
            raise RuleError(f"the rules of the org have more than {most} series and alerts (ruler.org_results)")
    except LakeError as error:
        reason = (error.message if isinstance(error, RuleError) else str(error))[:_MAX_ERROR]
        failed = replace(
            state,
            health=BAD,
            last_error=reason,
            evaluated_at_ms=at_ms,
            duration_s=time.monotonic() - began_s,
            alerts=() if isinstance(error, LimitExceeded) else state.alerts,
        )
        return RuleOutcome(failed)
    series = frozenset(sample.labels for sample in samples)
    ended = sorted(state.series - series, key=lambda labels: labels.pairs)
    after = RuleState(tuple(alerts), series, GOOD, "", "", at_ms, time.monotonic() - began_s)
    return RuleOutcome(after, tuple(samples), tuple(ended))


def _evaluated(
    group: Group,
    rule: Record | Alert,
    state: RuleState,
    at_ms: int,
    ask: Ask,
    surroundings: Surroundings,
    offset_ms: int,
) -> tuple[Sequence[Sample], Sequence[ActiveAlert]]:
    vector = ask(rule.expr, at_ms - offset_ms)
    limit = group.limit or surroundings.max_results
    labels = {**group.labels, **rule.labels}
    if isinstance(rule, Record):
        return record(rule.record, labels, vector, limit), ()
    scope = Scope(at_ms, ask, surroundings.external_labels, surroundings.external_url)
    alert = AlertRule(
        rule.alert, round(rule.for_s * 1000), round(rule.keep_firing_for_s * 1000), labels, rule.annotations
    )
    made = step(alert, state.alerts, vector, at_ms, lambda text, sample: expand(rule.alert, text, sample, scope), limit)
    return made.samples, made.alerts
