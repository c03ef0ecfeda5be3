"""What the expression of a rule reads: signals, and metrics by name. Compiling it is also its check."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.language import QueryOptions, StepPlan, ValuePlan
from lakerunner.query.languages import language
from lakerunner.query.series.matchers import MatchKind
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.errors import ParseError
from lakerunner.rules.definitions import PROMQL, TRACEQL, Alert, Record

#: Any time will do to find out what is read.
_AT_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Reads:
    signals: frozenset[str]
    #: Names of the metrics that are read; None: they cannot be told.
    metrics: frozenset[str] | None
    #: Metrics that are read at the time of the evaluation, and not at an earlier one alone.
    now: frozenset[str] | None


def reads_of(rule: Record | Alert, width_ms: int = 60_000) -> Reads:
    """What the rule reads. BadInput, that points into the rule's file where it can, if it is no metric query."""
    try:
        lookback_ms = width_ms if rule.language == TRACEQL else 300_000
        plan = language(rule.language).compile(
            rule.expr, QueryTimes(_AT_MS, _AT_MS, 0), QueryOptions(lookback_ms=lookback_ms)
        )
    except ParseError as error:
        raise (error if rule.source is None else rule.source.query_error("expr", error)) from None
    if not isinstance(plan, StepPlan | ValuePlan) or (rule.language != PROMQL and not isinstance(plan, StepPlan)):
        reason = "expr: the query gives no vector and no scalar"
        raise (
            BadInput(f"cannot evaluate {rule.expr!r}: {reason}")
            if rule.source is None
            else rule.source.error("expr", reason)
        )
    found: set[str] | None = set()
    now: set[str] | None = set()
    for leaf in plan.leaves:
        if leaf.signal != "metrics":
            continue
        names = {
            matcher.value
            for matcher in leaf.matchers
            if matcher.name == METRIC_NAME and matcher.kind is MatchKind.EQUAL
        }
        found = None if found is None or not names else found | names
        if leaf.end_ms >= _AT_MS:
            now = None if now is None or not names else now | names
    return Reads(
        frozenset(leaf.signal for leaf in plan.leaves),
        None if found is None else frozenset(found),
        None if now is None else frozenset(now),
    )
