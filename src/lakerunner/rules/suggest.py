"""Proposes materialization rules for queries that were asked: which rule would answer them, and what they cost.

A proposal is made from a part of a logged query, as it is or with one of its conditions turned into a dimension, so
that queries that differ in that value share a rule. Whether it answers a query is decided by the guards themselves,
and whether it may be applied by the checks of `rules apply`. The cost is what the log measured of those queries; what
reading the rule's series costs instead is not known before there are any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from lakerunner.index.query_log import LoggedQuery
from lakerunner.index.rule_catalog import StoredRule
from lakerunner.model.compute import Compute
from lakerunner.model.errors import LakeError
from lakerunner.model.ids import hashed_id
from lakerunner.model.signals import LOGS, TRACES
from lakerunner.query.language import QueryOptions, StepPlan
from lakerunner.query.languages import language
from lakerunner.query.logql import ast as logql
from lakerunner.query.logql.language import LogSteps
from lakerunner.query.logql.printer import print_expr
from lakerunner.query.rules import logs, spans
from lakerunner.query.rules.rewriter import REWRITER, Considered, Part
from lakerunner.query.rules.rule import Candidate
from lakerunner.query.rules.stored import rule_version
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.traceql import ast as traceql
from lakerunner.query.traceql.language import MetricPlan
from lakerunner.query.traceql.printer import field as field_text
from lakerunner.query.traceql.printer import field_expr
from lakerunner.rules.check import check_groups
from lakerunner.rules.definitions import Materialize
from lakerunner.rules.file import read_rules
from lakerunner.rules.render import to_yaml
from lakerunner.rules.stored import to_document

#: Queries that are looked at, the most expensive ones.
MAX_QUERIES = 300
GROUP = "suggested"
#: Dimensions that a proposal gathers from its queries.
_MAX_DIMENSIONS = 8
_MASK = "***"


@dataclass(frozen=True, slots=True)
class Suggestion:
    rule: Materialize
    #: The queries that the rule answers, at least in part.
    queries: tuple[LoggedQuery, ...]
    #: The measured cost of what it answers; of a query that it answers in part, a part of the cost.
    asked: int
    rows_read: int
    bytes_read: int
    cpu_s: float

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": {"materialize": self.rule.name, **_document(self.rule)},
            "queries": [
                {"query": each.query, "language": each.language, "rangeMs": each.range_ms, "stepMs": each.step_ms,
                 "asked": each.asked, "cpuSeconds": round(each.cpu_s, 6)}
                for each in self.queries
            ],
            "asked": self.asked,
            "rowsRead": self.rows_read,
            "bytesRead": self.bytes_read,
            "cpuSeconds": round(self.cpu_s, 6),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A query for which no rule can be proposed."""

    query: LoggedQuery
    reason: str


@dataclass(slots=True)
class _Opened:
    """A logged query, compiled, with the parts of it that nothing answers yet."""

    logged: LoggedQuery
    plan: StepPlan
    parts: list[Part]
    left: set[str]

    @property
    def share(self) -> float:
        """What one part is of the whole cost. Which part costs how much was not measured."""
        return 1.0 / max(1, len(self.parts))


@dataclass(slots=True)
class _Pooled:
    """One selection and computation, with the dimensions that its queries group and filter by."""

    signal: str
    match: str
    compute: Compute
    operand: str
    #: The value of its service, for the name.
    service: str
    dimensions: set[str] = field(default_factory=set)
    queries: set[int] = field(default_factory=set)


def suggest(
    queries: Sequence[LoggedQuery], live: Sequence[StoredRule], limit: int = 10
) -> tuple[list[Suggestion], list[Unanswered]]:
    """The rules that would answer the most of what the queries cost, the most valuable first."""
    opened: list[_Opened] = []
    unanswered: list[Unanswered] = []
    for logged in queries[:MAX_QUERIES]:
        found = _open(logged, live)
        if isinstance(found, _Opened):
            opened.append(found)
        elif found:
            unanswered.append(Unanswered(logged, found))
    # Which parts of which queries a proposal answers; of others than its own it is asked only when it is chosen.
    proposals = [
        (rule, {number: _answered(rule, opened[number]) for number in sorted(pooled.queries)})
        for pooled in _pool(opened)
        if (rule := _valid(pooled)) is not None
    ]
    made: list[Suggestion] = []
    while proposals and len(made) < limit:
        scored = [(_saved(rule, opened, answers), rule) for rule, answers in proposals]
        best, rule = max(scored, key=lambda pair: (pair[0].cpu_s, pair[0].rows_read, pair[0].asked, pair[1].name))
        if not best.queries:
            break
        answers = {number: _answered(rule, each) for number, each in enumerate(opened)}
        made.append(_saved(rule, opened, answers))
        for number, each in enumerate(opened):
            each.left -= answers[number]
        proposals = [each for each in proposals if each[0] is not rule]
    served = {id(logged) for suggestion in made for logged in suggestion.queries}
    unanswered += [
        Unanswered(each.logged, _reason(each)) for each in opened if each.left and id(each.logged) not in served
    ]
    return made, unanswered


def to_file(suggestions: Sequence[Suggestion], days: int) -> str:
    """A rule file for `lakerunner rules apply`, with what every rule would save as a comment."""
    if not suggestions:
        return ""
    lines = ["groups:", f"  - name: {GROUP}", "    rules:"]
    for each in suggestions:
        lines.append(
            f"      # answers {len(each.queries)} queries, asked {each.asked:,} times in {days} days: "
            f"{each.rows_read:,} rows, {each.bytes_read:,} bytes, {each.cpu_s:,.2f} s of CPU time"
        )
        lines += [f"      #   {line}" for query in each.queries[:5] for line in query.query.splitlines()[:3]]
        lines += _rule_lines(each.rule)
    return "\n".join(lines) + "\n"


def _rule_lines(rule: Materialize) -> list[str]:
    text = to_yaml([{"materialize": rule.name, **_document(rule)}])
    return [f"      {line}" for line in text.splitlines()]


def _document(rule: Materialize) -> dict[str, Any]:
    compute = f"{rule.compute}({rule.field})" if rule.field else str(rule.compute)
    return {"signal": rule.signal, "match": rule.match, "dimensions": list(rule.dimensions), "compute": compute}


def _open(logged: LoggedQuery, live: Sequence[StoredRule]) -> _Opened | str:
    """The query with its parts; or why nothing can be proposed for it, empty where that is no news."""
    if _MASK in logged.query:
        return "its text was masked, because it looked like it held a secret"
    end_ms = 1_700_000_000_000
    if logged.step_ms:
        end_ms -= end_ms % logged.step_ms
    times = QueryTimes(end_ms - logged.range_ms, end_ms, logged.step_ms)
    try:
        plan = language(logged.language).compile(logged.query, times, QueryOptions(lookback_ms=60_000))
    except LakeError as error:
        return f"it cannot be compiled: {error.message}"
    if not isinstance(plan, LogSteps | MetricPlan):
        return ""
    parts: list[Part] = list(logs.parts_of(plan.expr)) if isinstance(plan, LogSteps) else list(spans.parts_of(plan))
    refused = next((part.refusal for part in parts if part.refusal), "")
    if all(part.refusal for part in parts):
        return refused
    considered = REWRITER.consider_stored(plan, live)
    known = set() if considered is None else {option.text for option in considered.options}
    left = {part.text for part in parts if not part.refusal} - known
    return _Opened(logged, plan, parts, left) if left else ""


def _pool(opened: Sequence[_Opened]) -> list[_Pooled]:
    pool: dict[tuple[str, str, Compute, str], _Pooled] = {}
    for number, each in enumerate(opened):
        for part in each.parts:
            if part.text not in each.left:
                continue
            for shape in _shapes(part):
                key = shape.signal, shape.match, shape.compute, shape.operand
                pooled = pool.setdefault(key, shape)
                if len(pooled.dimensions | shape.dimensions) <= _MAX_DIMENSIONS:
                    pooled.dimensions |= shape.dimensions
                    pooled.queries.add(number)
    return list(pool.values())


def _shapes(part: Part) -> Iterator[_Pooled]:
    candidate: Candidate = part.candidates[0]
    try:
        compute = Compute(candidate.function.value)
    except ValueError:
        return
    node = part.node
    shapes = _span_matches(node) if isinstance(node, traceql.Metric) else _log_matches(node)
    for match, service, added in shapes:
        dimensions = {*candidate.by, *added}
        yield _Pooled(candidate.signal, match, compute, candidate.field, service, dimensions)


def _log_matches(node: object) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The selection of a part as it is, and with one matcher or label filter turned into a dimension."""
    inner = node.expr if isinstance(node, logql.VectorAggregate) else node
    if not isinstance(inner, logql.RangeAggregate):
        return
    selector = inner.range.selector
    service = next((each.value for each in selector.matchers if _is_equal(each) and each.name == "service_name"), "")
    yield print_expr(selector), service, ()
    for place, matcher in enumerate(selector.matchers):
        if _is_equal(matcher):
            wide = Matcher(matcher.name, MatchKind.REGEX, ".+")
            matchers = (*selector.matchers[:place], wide, *selector.matchers[place + 1 :])
            left = "" if matcher.name == "service_name" else service
            yield print_expr(replace(selector, matchers=matchers)), left, (matcher.name,)
    for place, stage in enumerate(selector.stages):
        if isinstance(stage, logql.LabelFilter) and isinstance(stage.condition, logql.StringFilter):
            matcher = stage.condition.matcher
            if _is_equal(matcher) and not matcher.name.startswith("__"):
                stages = (*selector.stages[:place], *selector.stages[place + 1 :])
                yield print_expr(replace(selector, stages=stages)), service, (matcher.name,)


def _is_equal(matcher: Matcher) -> bool:
    return matcher.kind is MatchKind.EQUAL and bool(matcher.value)


def _span_matches(node: traceql.Metric) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    conditions = [
        condition
        for stage in node.pipeline.stages
        if isinstance(stage, traceql.Filter) and stage.condition is not None
        for condition in _conjuncts(stage.condition)
    ]
    service = next((value for name, value in map(_equality, conditions) if name == "resource.service.name"), "")
    yield _filter(conditions), service, ()
    for place, condition in enumerate(conditions):
        name, _ = _equality(condition)
        if name:
            left = "" if name == "resource.service.name" else service
            yield _filter([*conditions[:place], *conditions[place + 1 :]]), left, (name,)


def _filter(conditions: Sequence[traceql.FieldExpr]) -> str:
    return "{ " + " && ".join(f"({field_expr(each)})" for each in conditions) + " }" if conditions else "{ }"


def _conjuncts(expr: traceql.FieldExpr) -> Iterator[traceql.FieldExpr]:
    if isinstance(expr, traceql.Binary) and expr.op == "&&":
        yield from _conjuncts(expr.left)
        yield from _conjuncts(expr.right)
    else:
        yield expr


def _equality(expr: traceql.FieldExpr) -> tuple[str, str]:
    """The field and text of `field = "text"`; empty if it is something else."""
    match expr:
        case traceql.Binary(
            op="=", left=(traceql.Attribute() | traceql.Intrinsic()) as left, right=traceql.Literal() as right
        ):
            if isinstance(right.value, str):
                return field_text(left), right.value
    return "", ""


def _valid(pooled: _Pooled) -> Materialize | None:
    """The rule, if `rules apply` would take it."""
    what = "lines" if pooled.signal == LOGS.name else "spans"
    stem = re.sub(r"[^a-z0-9]+", "_", pooled.service.lower()).strip("_")
    parts = (pooled.match, pooled.compute, pooled.operand)
    tail = hashed_id(*(str(part).encode() for part in parts)).hex[:6]
    kind = "" if pooled.compute is Compute.COUNT else f"_{pooled.compute}"
    total = "_total" if pooled.compute in (Compute.COUNT, Compute.BYTES, Compute.SUM) else ""
    name = re.sub(r"^(?=\d)", "_", f"{stem + '_' if stem else ''}{what}{kind}_{tail}{total}")
    dimensions = tuple(sorted(pooled.dimensions))
    rule = Materialize(name, pooled.signal, pooled.match, dimensions, pooled.compute, pooled.operand)
    text = to_yaml({"groups": [{"name": GROUP, "rules": [{"materialize": rule.name, **_document(rule)}]}]})
    try:
        groups = read_rules(text)
        if check_groups(groups):
            return None
    except LakeError:
        return None
    (read,) = groups[0].materialized
    return read


def _answered(rule: Materialize, each: _Opened) -> set[str]:
    """Parts of the query that are left and that the rule answers, as the guards say."""
    if not each.left or rule.signal != (LOGS.name if isinstance(each.plan, LogSteps) else TRACES.name):
        return set()
    considered = _considered(rule, each)
    return set() if considered is None else {option.text for option in considered.options} & each.left


def _considered(rule: Materialize, each: _Opened) -> Considered | None:
    stored = StoredRule(
        0, each.logged.org_id, rule.signal, rule.name, 1, GROUP, to_document(rule), 1, None, datetime.now(UTC), ""
    )
    version = rule_version(stored)
    return None if version is None else REWRITER.consider(each.plan, [version])


def _saved(rule: Materialize, opened: Sequence[_Opened], answers: Mapping[int, set[str]]) -> Suggestion:
    """What the rule would answer of what is left."""
    found = Suggestion(rule, (), 0, 0, 0, 0.0)
    for number, answered in answers.items():
        each = opened[number]
        parts = len(answered & each.left)
        if parts:
            share, logged = min(1.0, parts * each.share), each.logged
            found = Suggestion(
                rule,
                (*found.queries, logged),
                found.asked + logged.asked,
                found.rows_read + round(share * logged.rows_read),
                found.bytes_read + round(share * logged.bytes_read),
                found.cpu_s + share * logged.cpu_s,
            )
    return found


def _reason(each: _Opened) -> str:
    """Why the rule made of the query itself does not answer it."""
    for part in each.parts:
        if part.text not in each.left:
            continue
        for shape in _shapes(part):
            rule = _valid(shape)
            if rule is None:
                return "a rule of its selection cannot be applied, or has a dimension without a bound"
            considered = _considered(rule, each)
            if considered is not None and considered.refused:
                return considered.refused[0].refusal
    return "other proposals are worth more"
