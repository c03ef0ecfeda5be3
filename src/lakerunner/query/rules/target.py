"""What a rule answers a part of a query with: a PromQL query over its series, and what is then done to its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.rules.guards import Case, matchers_of_series
from lakerunner.query.rules.rule import Function
from lakerunner.query.rules.span_quantiles import duration_quantiles
from lakerunner.query.series.block import Block
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.syntax.strings import quote
from lakerunner.query.traceql.labels import encoded_label
from lakerunner.query.traceql.metrics import P
from lakerunner.query.traceql.values import FLOAT, STRING

#: How the samples of a window, and then those of a group, are put together.
_TARGETS = {
    Function.COUNT: ("sum", "sum_over_time"),
    Function.BYTES: ("sum", "sum_over_time"),
    Function.SUM: ("sum", "sum_over_time"),
    Function.MIN: ("min", "min_over_time"),
    Function.MAX: ("max", "max_over_time"),
    Function.AVG: ("sum", "sum_over_time"),
    Function.QUANTILE: ("sum", "sum_over_time"),
    Function.DISTINCT: ("sum", "sum_over_time"),
}
#: What is read of the histogram of a window and group.
_OF_HISTOGRAMS = {
    Function.SUM: "histogram_sum({})",
    Function.AVG: "histogram_avg({})",
    Function.QUANTILE: "histogram_quantile({quantile!r}, {})",
    Function.DISTINCT: "histogram_distinct({})",
}
#: What the warning of an answer says that is within a stated error only.
_WITHIN = {
    Function.QUANTILE: "quantile_over_time was computed from histograms of a rule, within 9.1%",
    Function.DISTINCT: "different values were counted by a rule, with a standard error of 1.6%",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A query over the series of a rule, and the names of its labels in the answer."""

    promql: str
    #: Label of the series -> label of the answer.
    names: tuple[tuple[str, str], ...]
    divisor: float = 1.0
    zeros: bool = False
    typed: bool = False
    #: Within which error the answer is, as a sentence; empty if it is exact.
    within: str = ""
    #: Quantiles of durations that are read of histograms, as TraceQL has them.
    quantiles: tuple[float, ...] = ()
    #: Labels of the answer that are empty where the series of the rule lack them.
    always: frozenset[str] = frozenset()

    def shaped(self, block: Block) -> Block:
        """The result as the part of the query would have it."""
        if self.quantiles:
            return self._of_durations(block)
        renamed = self.typed or bool(self.always) or any(label != name for label, name in self.names)
        labels: Sequence[LabelSet] = [self._renamed(each) for each in block.labels] if renamed else block.labels
        values, valid = block.values, block.valid
        if self.divisor != 1.0:
            values = values / self.divisor
        if self.zeros:
            values, valid = np.where(valid, values, 0.0), np.ones_like(valid)
        return Block(labels, values, valid, np.zeros(len(labels), np.bool_))

    def _of_durations(self, block: Block) -> Block:
        rows, found = duration_quantiles(block, self.quantiles)
        if not rows:
            return Block.empty(block.shape[1])
        groups = [self._renamed(block.labels[row]) for row in rows]
        labels = [each.with_label(P, encoded_label(FLOAT, quantile)) for each in groups for quantile in self.quantiles]
        values = np.concatenate(found)
        return Block(labels, values, np.ones(values.shape, np.bool_), np.zeros(len(labels), np.bool_))

    def _renamed(self, labels: LabelSet) -> LabelSet:
        if self.typed:
            return LabelSet.of({name: encoded_label(STRING, labels.get(label)) for label, name in self.names})
        found = {name: value for label, name in self.names if (value := labels.get(label)) or name in self.always}
        return LabelSet(tuple(sorted(found.items())))


def target_of(case: Case) -> Target:
    candidate, rule = case.candidate, case.rule
    outer, inner = _TARGETS[candidate.function]
    pairs = [(label, name) for name in candidate.by if (label := rule.label_of(name)) is not None]
    selector = f"{rule.name}{{{', '.join(map(_matcher, matchers_of_series(case)))}}}"
    offset = f" offset {_duration(candidate.offset_ns)}" if candidate.offset_ns else ""
    by = ", ".join(label for label, _ in pairs)
    promql = f"{outer} by ({by}) ({inner}({selector}[{_duration(candidate.range_ns)}]{offset}))"
    if rule.version.compute.is_distribution and not candidate.quantiles:
        form = _OF_HISTOGRAMS.get(candidate.function)
        assert form is not None
        promql = form.format(promql, quantile=candidate.quantile)
    return Target(
        promql,
        tuple(pairs),
        candidate.divisor,
        candidate.zeros,
        candidate.typed,
        _WITHIN.get(candidate.function, ""),
        candidate.quantiles,
        candidate.always,
    )


def _duration(width_ns: int) -> str:
    sign = "-" if width_ns < 0 else ""
    return f"{sign}{abs(width_ns) // NS_PER_MS}ms"


def _matcher(matcher: Matcher) -> str:
    return f"{matcher.name}{matcher.kind.value}{quote(matcher.value)}"
