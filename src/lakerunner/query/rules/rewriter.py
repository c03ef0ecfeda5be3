"""Decides which parts of a query rules answer: guards first, then coverage in the snapshot of the query's segments."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

from lakerunner.index.rule_catalog import StoredRule
from lakerunner.model.compute import Compute
from lakerunner.model.errors import LakeError
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.language import Plan, StepPlan
from lakerunner.query.languages import language
from lakerunner.query.logql.language import LogSteps
from lakerunner.query.plan.coverage import CoverageWant, Gap
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.promql.language import PromQlSteps
from lakerunner.query.rules import logs, samples, spans
from lakerunner.query.rules.coverage import Windows, overlaps
from lakerunner.query.rules.guards import GUARDS, Case, Guard, refusal
from lakerunner.query.rules.kept_shapes import KeptShapes
from lakerunner.query.rules.logs_substitution import LogSubstitution
from lakerunner.query.rules.rule import Candidate, Function, Rule, RuleVersion
from lakerunner.query.rules.ruled_plan import RuledPart, RuledSteps, Substitution
from lakerunner.query.rules.samples_substitution import SampleSubstitution
from lakerunner.query.rules.selection import Condition, Selection
from lakerunner.query.rules.spans_substitution import SpanSubstitution
from lakerunner.query.rules.stored import rule_versions
from lakerunner.query.rules.target import target_of
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.traceql.language import MetricPlan

PROMQL = "promql"
#: Parts of one query that are compared with rules. Generated queries have thousands.
_MAX_PARTS = 64
_NO_INDEX = "the index does not answer, and so it is not known which rows the rule has"


class Part(Protocol):
    """A part of a query, in the forms in which a rule may answer it; or why no rule can."""

    @property
    def node(self) -> object: ...
    @property
    def candidates(self) -> tuple[Candidate, ...]: ...
    @property
    def refusal(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def within(self) -> object:
        """The node of the part that this one is a part of; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Note:
    """What became of one part of a query and one rule, for EXPLAIN."""

    part: str
    #: Empty: no rule could answer.
    rule: str
    version: int
    #: Why the rule does not answer; empty if it does.
    refusal: str = ""
    #: What the rule's series are asked for, and where raw rows are read instead.
    promql: str = ""
    gaps: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        if self.refusal:
            return {"part": self.part, "rule": self.rule, "rewritten": False, "reason": self.refusal}
        found = {"part": self.part, "rule": self.rule, "version": self.version, "rewritten": True}
        return {**found, "query": self.promql, "raw": list(self.gaps)}


@dataclass(frozen=True, slots=True)
class Considered:
    """A plan, the parts that rules answer if they have all rows, and what was refused already."""

    raw: StepPlan
    options: tuple[RuledPart, ...]
    #: By option: what to ask the index.
    wants: tuple[CoverageWant, ...]
    refused: tuple[Note, ...]
    substitution: Substitution | None = None

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Everything that may be read, whatever the index says."""
        return tuple(dict.fromkeys((*self.raw.leaves, *(leaf for each in self.options for leaf in each.plan.leaves))))

    def decided(
        self, gaps: Mapping[CoverageWant, Sequence[Gap]], segments: Sequence[Segment] = ()
    ) -> tuple[Plan, tuple[Note, ...]]:
        """The plan with the rules that have rows, for each part the one that lacks the fewest steps."""
        steps = self.raw.times.steps()
        best: dict[int, tuple[int, RuledPart]] = {}
        notes = list(self.refused)
        for option, want in zip(self.options, self.wants, strict=True):
            known = gaps.get(want)
            if known is None:
                notes.append(_refused(option, _NO_INDEX))
                continue
            if option.signal != LOGS.name:
                known = [*known, *overlaps(option.signal, option.metric, segments, want.start_ns, want.end_ns)]
            part = replace(option, gaps=tuple(known)) if known else option
            covered = part.covered(steps)
            number = int(covered.sum()) if self.raw.splittable else len(steps) * int(covered.all())
            if not number:
                notes.append(_refused(option, f"the rule lacks rows: {known[0].sentence}" if known else "no steps"))
            elif id(part.node) not in best or number > best[id(part.node)][0]:
                best[id(part.node)] = number, part
        # A part of a part that is answered is not asked for.
        parts = [part for _, part in best.values() if part.within is None or id(part.within) not in best]
        if not parts or self.substitution is None:
            return self.raw, tuple(notes)
        notes += [
            Note(part.text, part.rule, part.version, "", part.target.promql, tuple(gap.sentence for gap in part.gaps))
            for part in parts
        ]
        return RuledSteps(self.raw, parts, self.substitution), tuple(notes)


def _refused(option: RuledPart, reason: str) -> Note:
    return Note(option.text, option.rule, option.version, reason)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What rules could answer of a query at any times with the same steps."""

    #: With plans for the times at which the query was asked first.
    options: tuple[RuledPart, ...]
    versions: tuple[RuleVersion, ...]
    refused: tuple[Note, ...]

    def at(self, plan: LogSteps) -> Considered:
        """The same for the times of the plan."""
        options = tuple(_moved(option, plan) for option in self.options)
        wants = tuple(_want(*each, plan) for each in zip(options, self.versions, strict=True))
        return Considered(plan, options, wants, self.refused, LogSubstitution(plan))


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Compares the parts of plans with rules."""

    guards: tuple[Guard, ...] = field(default=GUARDS)
    _shapes: KeptShapes[_Shape] = field(default_factory=KeptShapes, compare=False, repr=False)

    def consider_stored(self, plan: Plan, rules: Sequence[StoredRule]) -> Considered | None:
        """What the rules of the catalog could answer of the plan."""
        return self.consider(plan, rule_versions(rules)) if rules else None

    def consider(self, plan: Plan, versions: Sequence[RuleVersion]) -> Considered | None:
        """What rules could answer of the plan; None if there is nothing to compare.

        Rules in a tuple are known by its identity: what was found for a log query is kept for its next time.
        """
        if not isinstance(plan, StepPlan) or not versions:
            return None
        if not isinstance(plan, LogSteps) or not isinstance(versions, tuple):
            return self._compared(plan, versions)
        shape = self._shapes.find(plan, plan.expr, versions)
        if shape is not None:
            return shape.at(plan)
        found = self._compared(plan, versions)
        if found is not None:
            by_id = {version.rule_id: version for version in versions}
            of_options = tuple(by_id[option.rule_id] for option in found.options)
            self._shapes.keep(plan, plan.expr, versions, _Shape(found.options, of_options, found.refused))
        return found

    def _compared(self, plan: StepPlan, versions: Sequence[RuleVersion]) -> Considered | None:
        if isinstance(plan, PromQlSteps):
            # Every query of metrics would say of every other rule that it reads something else.
            versions = [each for each in versions if each.signal == METRICS.name]
        found = _parts(plan) if versions else None
        if found is None:
            return None
        parts, substitution = found
        options: list[RuledPart] = []
        wants: list[CoverageWant] = []
        notes: list[Note] = []
        for part in parts[:_MAX_PARTS]:
            if part.refusal:
                if part.within is None:
                    notes.append(Note(part.text, "", 0, part.refusal))
                continue
            text = part.text
            # Of rules that answer the same, the one with the fewest dimensions has the fewest series.
            for version in sorted(_comparable(part, versions), key=lambda each: len(each.dimensions)):
                made = self._answer(plan, part, text, version)
                if isinstance(made, Note):
                    notes.append(made)
                else:
                    options.append(made)
                    wants.append(_want(made, version, plan))
        return Considered(plan, tuple(options), tuple(wants), tuple(notes), substitution)

    def _answer(self, plan: StepPlan, part: Part, text: str, version: RuleVersion) -> RuledPart | Note:
        """The part as the rule answers it, or why it does not."""
        rule = _rule(version)
        if rule is None:
            return Note(text, version.name, version.version, "the rule's selection is not one of this release")
        reasons: list[str] = []
        for candidate in part.candidates:
            case = Case(candidate, rule, plan.times.start_ns, plan.times.step_ms * NS_PER_MS, plan.options.approximate)
            reason = refusal(case, self.guards)
            if reason is None:
                return self._ruled(plan, part, text, case)
            reasons.append(reason)
        return Note(text, version.name, version.version, reasons[-1])

    def _ruled(self, plan: StepPlan, part: Part, text: str, case: Case) -> RuledPart:
        target = target_of(case)
        compiled = _compiled(target.promql, plan)
        windows = Windows(case.candidate.range_ns, case.candidate.offset_ns)
        version = case.rule.version
        return RuledPart(
            part.node,
            text,
            version.signal,
            version.name,
            version.rule_id,
            version.version,
            target,
            compiled,
            windows,
            metric=case.rule.selection.metric,
            within=part.within,
        )


def _comparable(part: Part, versions: Sequence[RuleVersion]) -> list[RuleVersion]:
    """A count of groups is also a part around another: rules that can answer only one of the two say nothing there."""
    if part.candidates[0].function is Function.DISTINCT:
        return [each for each in versions if each.compute is Compute.DISTINCT]
    return [each for each in versions if part.within is None or each.compute is not Compute.DISTINCT]


def _compiled(promql: str, plan: StepPlan) -> StepPlan:
    compiled = language(PROMQL).compile(promql, _whole_ms(plan.times), plan.options)  # type: ignore[arg-type]
    assert isinstance(compiled, StepPlan)
    return compiled


def _moved(option: RuledPart, plan: StepPlan) -> RuledPart:
    """The same part, answered at the times of the plan."""
    known = option.plan
    assert isinstance(known, PromQlSteps)
    moved: StepPlan | None = known.moved(_whole_ms(plan.times)) if known.options == plan.options else None
    if moved is known:
        return option
    return replace(option, plan=moved or _compiled(option.target.promql, plan))


def _whole_ms(times: QueryTimes) -> QueryTimes:
    return QueryTimes(times.start_ms, times.end_ms, times.step_ms)


def _want(part: RuledPart, version: RuleVersion, plan: StepPlan) -> CoverageWant:
    start_ns, end_ns = part.windows.extent(plan.times.steps() * NS_PER_MS)
    return CoverageWant(version.rule_id, start_ns, end_ns, version.stored)


def _parts(plan: StepPlan) -> tuple[Sequence[Part], Substitution] | None:
    if isinstance(plan, LogSteps):
        return list(_first(logs.parts_of(plan.expr))), LogSubstitution(plan)
    if isinstance(plan, MetricPlan):
        return list(_first(spans.parts_of(plan))), SpanSubstitution(plan)
    if isinstance(plan, PromQlSteps):
        return list(_first(samples.parts_of(plan))), SampleSubstitution(plan)
    return None


def _first(parts: Iterator[Part]) -> Iterator[Part]:
    for number, part in enumerate(parts):
        if number > _MAX_PARTS:
            return
        yield part


def _rule(version: RuleVersion) -> Rule | None:
    selection = _selection(version.signal, version.match)
    if selection is None:
        return None
    if version.compute is Compute.DISTINCT:
        # A row without the field has no value to count. A query counts it as one, unless it says otherwise.
        there = Matcher(version.field, MatchKind.NOT_EQUAL, "")
        selection = selection.where(Condition(f'condition {version.field} != ""', matcher=there))
    return Rule(version, selection)


_SELECTIONS: Mapping[Hashable, Any] = {
    LOGS.name: logs.selection_of,
    TRACES.name: spans.selection_of,
    METRICS.name: samples.selection_of,
}


@lru_cache(maxsize=1024)
def _selection(signal: str, match: str) -> Selection | None:
    read = _SELECTIONS.get(signal)
    try:
        return None if read is None else read(match)
    except LakeError:
        return None


REWRITER = Rewriter()
