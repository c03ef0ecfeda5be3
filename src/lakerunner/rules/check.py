"""Checks the materialization rules of a file, each finding at its line and column. What passes can be evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakerunner.query.syntax.errors import ParseError
from lakerunner.rules.definitions import Group, Materialize, Record
from lakerunner.rules.matches import dimension_labels, log_match, metric_match, span_match
from lakerunner.rules.source import Source, Span

#: Series that any rule may have.
MAX_SERIES = 100_000
MAX_DIMENSIONS = 20
#: Fields that have another value in almost every row.
_UNBOUNDED = frozenset(
    {"trace_id", "span_id", "observed_timestamp", "trace:id", "span:id", "span:parentID", "duration", "span:duration"}
)
#: How the match of a rule is read, by signal. Each refuses what a rule cannot do.
_READERS = {"logs": log_match, "traces": span_match, "metrics": metric_match}
#: How names of built-in metrics begin.
BUILT_IN_METRICS = ("traces_spanmetrics_", "traces_service_graph_", "ALERTS")


def check_groups(groups: Iterable[Group]) -> list[ParseError]:
    """Everything that is wrong with the materialization rules of these groups."""
    groups = list(groups)
    errors: list[ParseError] = []
    seen: set[str] = set()
    recorded = {rule.record for group in groups for rule in group.rules if isinstance(rule, Record)}
    for rule in (rule for group in groups for rule in group.materialized):
        errors += _errors_of(rule)
        if rule.name in seen:
            errors.append(_at(rule, "materialize", f"the rule {rule.name!r} is there twice"))
        elif rule.name in recorded:
            errors.append(_at(rule, "materialize", f"{rule.name!r} is the name of a recording rule too"))
        seen.add(rule.name)
    return errors


def require_valid(groups: Sequence[Group]) -> None:
    """Raise the first error."""
    for error in check_groups(groups):
        raise error


def _errors_of(rule: Materialize) -> list[ParseError]:
    found: list[ParseError] = []
    if rule.name.startswith(BUILT_IN_METRICS):
        found.append(_at(rule, "materialize", f"{rule.name!r} is a name of built-in metrics"))
    if rule.max_series > MAX_SERIES:
        found.append(_at(rule, "max_series", f"max_series is more than {MAX_SERIES:,}"))
    if len(rule.dimensions) > MAX_DIMENSIONS:
        found.append(_at(rule, "dimensions", f"a rule has at most {MAX_DIMENSIONS} dimensions"))
    for name in rule.dimensions:
        if name in _UNBOUNDED:
            reason = f"dimensions: {name!r} has another value in every row, so that every row would be a series"
            found.append(_at(rule, "dimensions", reason))
    labels = [label for _, label in dimension_labels(rule)]
    both = sorted({*labels} & {*rule.labels})
    found += [_at(rule, "labels", f"labels: {label!r} is a dimension too") for label in both]
    try:
        _READERS[rule.signal](rule)
    except ParseError as error:
        found.append(error)
    return found


def _at(rule: Materialize, field: str, reason: str, hint: str | None = None) -> ParseError:
    source = rule.source or Source(rule.match, Span(0, len(rule.match)))
    return source.error(field, reason, hint=hint)
