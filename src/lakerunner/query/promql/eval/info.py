"""info(): adds the labels of a target's info series to the target's other series."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.promql.ast import (
    Binary,
    Call,
    Expr,
    Number,
    Paren,
    String,
    Subquery,
    Unary,
    ValueType,
    VectorSelector,
    children,
)
from lakerunner.query.promql.eval.selectors import reference_times
from lakerunner.query.promql.functions import FUNCTIONS
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.block import Block, Bools, EvaluationError, any_series, any_step
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher, MatchKind, accepting, any_of
from lakerunner.query.vectors.annotations import format_labels
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.instant import latest_samples

#: Series with equal values of these labels belong to the same target.
_IDENTIFYING = ("instance", "job")
_DEFAULT_NAME = Matcher(METRIC_NAME, MatchKind.EQUAL, "target_info")

_ANY_INFO_NAME = Matcher(METRIC_NAME, MatchKind.REGEX, ".+_info")


def _target(labels: LabelSet) -> tuple[str, ...]:
    return tuple(labels.get(name) for name in _IDENTIFYING)


class _InfoSeries:
    """Info series by metric name and target. Of several, the one with the newest sample wins."""

    def __init__(self, batch: SeriesBatch, index: Ints) -> None:
        self.batch = batch
        self.index = index
        self.by_target: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for row, labels in enumerate(batch.labels):
            target = _target(labels)
            if any(target):
                self.by_target[labels.get(METRIC_NAME), *target].append(row)
        self.names = sorted({labels.get(METRIC_NAME) for labels in batch.labels})

    def chosen(self, name: str, labels: LabelSet) -> Ints:
        """The row of the info series for a series with these labels at every step, or -1."""
        rows = self.by_target.get((name, *_target(labels)), [])
        steps = self.index.shape[1]
        best = np.full(steps, -1, dtype=np.int64)
        newest = np.full(steps, np.iinfo(np.int64).min)
        for row in rows:
            there = self.index[row] >= 0
            time = np.where(there, self.batch.timestamps_ms[self.index[row]], np.iinfo(np.int64).min)
            better = there & (time > newest)
            best[better], newest[better] = row, time[better]
        return best

    def refuse_duplicates(self, steps: Bools) -> None:
        """Fail if two info series of a target have samples of the same time at one of the steps."""
        found: list[tuple[int, int, int, int]] = []
        for rows in self.by_target.values():
            times = np.where(self.index[rows] >= 0, self.batch.timestamps_ms[self.index[rows]], -1)
            for step in steps.nonzero()[0].tolist() if len(rows) > 1 else ():
                newest = times[:, step].max()
                same = (times[:, step] == newest).nonzero()[0].tolist()
                if newest >= 0 and len(same) > 1:
                    found.append((step, rows[same[1]], rows[same[0]], int(newest)))
                    break
        if not found:
            return
        _, second, first, time_ms = min(found)
        existing, new = format_labels(self.batch.labels[first]), format_labels(self.batch.labels[second])
        raise EvaluationError(
            f"found duplicate series for info metric: existing {existing} @ {time_ms}, new {new} @ {time_ms}"
        )


def enrich(evaluation: Evaluation, base_expr: Expr, base: Block, selector: VectorSelector | None, times: Ints) -> Block:
    matchers = list(selector.matchers) if selector else []
    name_matchers = [matcher for matcher in matchers if matcher.name == METRIC_NAME]
    data_matchers = [matcher for matcher in matchers if matcher.name != METRIC_NAME]
    names = _info_names(name_matchers)
    # Info series themselves are not enriched.
    accepts = accepting(names, evaluation.check_time)
    is_info = [accepts(labels.get(METRIC_NAME)) for labels in base.labels]
    enriched = [labels for labels, info in zip(base.labels, is_info, strict=True) if not info]
    info = _fetch(evaluation, base_expr, enriched, names, data_matchers, times)
    if info is not None:
        info.refuse_duplicates(any_series(base.present))
    out: list[tuple[int, LabelSet, Bools]] = []
    steps = len(times)
    for row, labels in enumerate(base.labels):
        if is_info[row]:
            out.append((row, labels, np.ones(steps, dtype=bool)))
        else:
            out += [(row, joined, cells) for joined, cells in _joined(labels, info, data_matchers, base.present[row])]
    if not out:
        return Block.empty(steps)
    rows = base.rows([row for row, _, _ in out]).masked(np.array([cells for _, _, cells in out]))
    return rows.relabelled([labels for _, labels, _ in out]).pruned().merged()


def info_matchers(call: Call) -> tuple[Matcher, ...]:
    """The matchers of the info series that a call of `info()` may read, its targets left open."""
    selector = call.args[1] if len(call.args) > 1 else None
    matchers = list(selector.matchers) if isinstance(selector, VectorSelector) else []
    names = [matcher for matcher in matchers if matcher.name == METRIC_NAME]
    return (*_info_names(names), *(matcher for matcher in matchers if matcher.name != METRIC_NAME))


def _info_names(given: Sequence[Matcher]) -> Sequence[Matcher]:
    """The matchers of info metric names. With negative matchers only, all other `*_info` metrics are meant."""
    if not given:
        return [_DEFAULT_NAME]
    if any(matcher.kind in (MatchKind.EQUAL, MatchKind.REGEX) for matcher in given):
        return given
    return [_ANY_INFO_NAME, *given]


def _joined(
    labels: LabelSet, info: _InfoSeries | None, data_matchers: Sequence[Matcher], present: Bools
) -> list[tuple[LabelSet, Bools]]:
    """The enriched label sets of one series, each with its steps."""
    steps = len(present)
    choices = np.zeros((0, steps), dtype=np.int64)
    if info is not None and info.names:
        choices = np.array([info.chosen(name, labels) for name in info.names])
    combinations, which = np.unique(choices, axis=1, return_inverse=True)
    which = np.asarray(which).reshape(-1)
    wanted = {matcher.name for matcher in data_matchers}
    may_be_missing = all(matcher.matches("") for matcher in data_matchers)
    out = []
    for column in range(combinations.shape[1]):
        cells = (which == column) & present
        rows = [row for row in combinations[:, column].tolist() if row >= 0]
        if not cells.any() or (not rows and not may_be_missing):
            continue
        assert info is not None or not rows
        found = [info.batch.labels[row] for row in rows] if info is not None else []
        out.append((_with_data_labels(labels, found, wanted), cells))
    return out


def _with_data_labels(labels: LabelSet, found: Sequence[LabelSet], wanted: set[str]) -> LabelSet:
    added: dict[str, str] = {}
    base = dict(labels.pairs)
    for info_labels in found:
        for name, value in info_labels:
            if name == METRIC_NAME or (wanted and name not in wanted):
                continue
            if added.get(name, value) != value:
                raise EvaluationError(f"conflicting label: {name}")
            if name not in base:
                added[name] = value
    return LabelSet.of({**base, **added})


def _fetch(
    evaluation: Evaluation,
    base_expr: Expr,
    enriched: list[LabelSet],
    name_matchers: Sequence[Matcher],
    data_matchers: Sequence[Matcher],
    times: Ints,
) -> _InfoSeries | None:
    """Read the info series of the given targets at the times that the expression refers to."""
    targets = [target for target in map(_target, enriched) if any(target)]
    if not targets:
        # Without identifying labels there are no info series.
        return None
    # An empty value is that of series which lack the label: their info series must lack it too.
    identifying = [
        any_of(name, sorted(set(of))) for name, of in zip(_IDENTIFYING, zip(*targets, strict=True), strict=True)
    ]
    at = _common_times(evaluation, base_expr, times)
    lookback_ms = evaluation.options.lookback_ms
    batch = evaluation.source.select(
        [*name_matchers, *identifying, *data_matchers],
        int(at.min()) - lookback_ms + 1,
        int(at.max()),
    )
    evaluation.spend(len(batch.values))
    index = latest_samples(batch, at, lookback_ms)
    if batch.histograms is not None and len(batch.labels):
        is_histogram = (index >= 0) & (batch.histograms.row[index] >= 0)
        if is_histogram.any():
            labels = batch.labels[int(any_step(is_histogram).argmax())]
            raise EvaluationError(f"this should be an info metric, with float samples: {format_labels(labels)}")
    return _InfoSeries(batch, index)


def refers_to_one_time(expr: Expr) -> bool:
    """Whether all selectors of the expression have the same `@` and offset, and every vector comes from a selector."""
    paths, all_selected = _paths_to_selectors(expr)
    return all_selected and len({tuple((node.at, node.offset) for node in path) for path in paths}) == 1


def _common_times(evaluation: Evaluation, expr: Expr, times: Ints) -> Ints:
    """The times that all selectors of the expression refer to if they agree, else the times of the evaluation."""
    paths, all_selected = _paths_to_selectors(expr)
    referred = [_times_along(evaluation, path, times) for path in paths]
    if not referred or not all_selected or any(not np.array_equal(referred[0], other) for other in referred[1:]):
        return times
    return referred[0]


def _times_along(evaluation: Evaluation, path: Sequence[VectorSelector | Subquery], times: Ints) -> Ints:
    at = times
    for node in path:
        found, fixed = reference_times(evaluation, node, at)
        at = np.repeat(found, len(times)) if fixed else found
    return at


def _paths_to_selectors(expr: Expr) -> tuple[list[tuple[VectorSelector | Subquery, ...]], bool]:
    """The path to every vector selector, through its subqueries; and whether every vector comes from a selector.

    Not recursive: chains of operators may be long.
    """
    paths: list[tuple[VectorSelector | Subquery, ...]] = []
    all_selected = True
    pending: list[tuple[Expr, tuple[VectorSelector | Subquery, ...]]] = [(expr, ())]
    while pending:
        node, path = pending.pop()
        if isinstance(node, VectorSelector):
            paths.append((*path, node))
            continue
        if isinstance(node, Subquery):
            path = (*path, node)
        below = children(node)
        if isinstance(node, Call):
            below = below[:1] if node.name == "info" else below
        vectors = [child for child in below if _has_series(child)]
        all_selected = all_selected and bool(vectors)
        pending += [(child, path) for child in reversed(vectors)]
    return paths, all_selected


def _has_series(expr: Expr) -> bool:
    """Whether the expression yields series, and not a scalar or a string."""
    while True:
        match expr:
            case Number() | String():
                return False
            case Call(name=name):
                return FUNCTIONS[name].returns in (ValueType.VECTOR, ValueType.MATRIX)
            case Paren(expr=inner) | Unary(expr=inner):
                expr = inner
            case Binary(left=left, right=right):
                if _has_series(right):
                    return True
                expr = left
            case _:
                return True
