"""The conditions under which a rule answers a part of a query. Each returns a sentence that says why not, or None.

A rewrite needs all of them. Whether the rule's series are complete for a time is decided later, with the segments, in
one snapshot of the index (`coverage.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.model.compute import Compute
from lakerunner.query.rules.rule import BUCKET_NS, Candidate, Function, Rule
from lakerunner.query.rules.selection import Condition, further, not_implied
from lakerunner.query.series.matchers import Matcher

#: The functions that follow from what a rule computes.
_FOLLOWS: dict[Compute, frozenset[Function]] = {
    Compute.COUNT: frozenset({Function.COUNT}),
    Compute.BYTES: frozenset({Function.BYTES}),
    Compute.SUM: frozenset({Function.SUM}),
    Compute.MIN: frozenset({Function.MIN}),
    Compute.MAX: frozenset({Function.MAX}),
    # A histogram also has the number and the sum of its values.
    Compute.HISTOGRAM: frozenset({Function.SUM, Function.AVG, Function.QUANTILE}),
    Compute.DISTINCT: frozenset({Function.DISTINCT}),
}
#: Functions that are within an error, and the sentence that says within which.
_APPROXIMATE = {
    Function.QUANTILE: "quantiles of the rule's histograms are within 9.1%",
    Function.DISTINCT: "the rule's numbers of different values have a standard error of 1.6%",
}
_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Case:
    """May this rule answer this part of a query, at these steps?"""

    candidate: Candidate
    rule: Rule
    #: The first step, and the distance of the steps; 0 for one step.
    start_ns: int
    step_ns: int
    #: Whether the query allows an answer within a stated error.
    approximate: bool = False


Guard = Callable[[Case], str | None]


def same_signal(case: Case) -> str | None:
    """The rule reads the rows that the query reads."""
    asked, stored = case.candidate.signal, case.rule.version.signal
    return None if asked == stored else f"the rule reads {stored}, and the query reads {asked}"


def function_follows(case: Case) -> str | None:
    """What the query computes follows from what the rule keeps."""
    candidate, version = case.candidate, case.rule.version
    asked = f"{candidate.function}({candidate.field})" if candidate.field else str(candidate.function)
    kept = f"{version.compute}({version.field})" if version.field else str(version.compute)
    follows = candidate.function in _FOLLOWS.get(version.compute, ()) and candidate.field == version.field
    return None if follows else f"the rule keeps {kept}, from which {asked} does not follow"


def approximation_allowed(case: Case) -> str | None:
    """Quantiles of histograms and numbers of different values are approximate, so the query must allow them."""
    within = _APPROXIMATE.get(case.candidate.function)
    if within is None or case.approximate:
        return None
    return f"{within}, and the query does not allow it with approximate=1"


def same_changes(case: Case) -> str | None:
    """Stages that change labels or lines are the same, in the same order."""
    same = case.candidate.selection.changes == case.rule.selection.changes
    return None if same else "the rule's parsers and formats are not those of the query"


def matchers_implied(case: Case) -> str | None:
    """Every row that the query wants is one that the rule took."""
    if same_changes(case) is not None:
        return None
    for condition in not_implied(case.candidate.selection, case.rule.selection):
        return f"the query does not imply the rule's {condition.text}"
    return None


def rest_on_dimensions(case: Case) -> str | None:
    """Conditions of the query that the rule does not have can be decided by the labels of its series."""
    for condition in rest_of(case):
        matcher = condition.matcher
        if matcher is None:
            return f"{condition.text} is no condition on a label that the rule keeps"
        if case.rule.label_of(matcher.name) is None:
            return f"the rule does not keep {matcher.name}, on which the query has {condition.text}"
        if not condition.lasting:
            return f"a stage may change {matcher.name} after {condition.text}"
    return None


def grouping_kept(case: Case) -> str | None:
    """The labels that the query groups by are dimensions of the rule."""
    missing = [label for label in case.candidate.by if case.rule.label_of(label) is None]
    return f"the rule does not keep {', '.join(missing)}, by which the query groups" if missing else None


def types_kept(case: Case) -> str | None:
    """The labels of the answer have types that the labels of series keep."""
    untyped = case.candidate.untyped
    return f"the values of {', '.join(untyped)} may have types, and labels of series are texts" if untyped else None


def range_of_buckets(case: Case) -> str | None:
    """The window consists of whole buckets."""
    candidate = case.candidate
    for name, width_ns in (("range", candidate.range_ns), ("offset", candidate.offset_ns)):
        if width_ns % BUCKET_NS:
            return f"its {name} of {width_ns / _SECONDS:g} s is no multiple of 10 s"
    return None if candidate.range_ns > 0 else "its range is empty"


def steps_on_buckets(case: Case) -> str | None:
    """The windows end where buckets end."""
    if case.start_ns % BUCKET_NS:
        return "the query does not start at a multiple of 10 s"
    return "its step is no multiple of 10 s" if case.step_ns % BUCKET_NS else None


GUARDS: tuple[Guard, ...] = (
    same_signal,
    function_follows,
    approximation_allowed,
    same_changes,
    matchers_implied,
    rest_on_dimensions,
    grouping_kept,
    types_kept,
    range_of_buckets,
    steps_on_buckets,
)


def refusal(case: Case, guards: tuple[Guard, ...] = GUARDS) -> str | None:
    """Why the rule does not answer the part; None if it does."""
    return next((sentence for guard in guards if (sentence := guard(case)) is not None), None)


def rest_of(case: Case) -> list[Condition]:
    """What is still to be applied to the series of the rule."""
    if case.candidate.selection.changes != case.rule.selection.changes:
        return []
    return list(further(case.candidate.selection, case.rule.selection))


def matchers_of_series(case: Case) -> tuple[Matcher, ...]:
    """The conditions of the query on labels of the rule's series."""
    found = []
    for condition in rest_of(case):
        matcher = condition.matcher
        assert matcher is not None
        label = case.rule.label_of(matcher.name)
        assert label is not None
        found.append(Matcher(label, matcher.kind, matcher.value))
    return tuple(found)
