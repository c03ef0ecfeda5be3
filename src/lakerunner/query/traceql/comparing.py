"""`compare()`: how often each value of each attribute occurs among the selected spans and among the others."""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.labels import encoded_label
from lakerunner.query.traceql.printer import field as field_text
from lakerunner.query.traceql.spans import Spans
from lakerunner.query.traceql.spansets import PipelineRun
from lakerunner.query.traceql.values import ARRAY, NIL, Mask, Values, concat

META = "__meta_type"
_INTRINSICS = (
    *("instrumentation:name", "instrumentation:version", "kind", "name", "rootName", "rootServiceName"),
    *("span:childCount", "status", "statusMessage"),
)
INTRINSIC_FIELDS = tuple(map(ast.Intrinsic, _INTRINSICS))


def compared(
    spans: Spans, run: PipelineRun, rows: Ints, place: Ints, compare: ast.Compare, steps: int
) -> tuple[list[LabelSet], list[Ints]]:
    """The series of chosen rows, whose steps are in `place`."""
    selected = run.conditions.mask(compare.selection.condition)[rows]
    if compare.end_ns:
        starts = spans.start_ns[rows]
        selected = selected & (starts >= compare.start_ns) & (starts < compare.end_ns)
    labels: list[LabelSet] = []
    counts: list[Ints] = []
    fields: list[ast.Field] = [*INTRINSIC_FIELDS, *spans.attributes()]
    for field in fields:
        values = spans.values(field).take(rows)
        for meta, among in (("baseline", ~selected), ("selection", selected)):
            _add(labels, counts, field_text(field), meta, values, among, place, compare.top, steps)
    return labels, counts


def _add(
    labels: list[LabelSet],
    counts: list[Ints],
    name: str,
    meta: str,
    values: Values,
    among: Mask,
    place: Ints,
    top: int,
    steps: int,
) -> None:
    chosen = np.flatnonzero(among & (values.kind != NIL))
    if not len(chosen):
        return
    at = place[chosen]
    labels.append(LabelSet.of({META: f"s{meta}_total", name: "snil"}))
    counts.append(np.bincount(at, minlength=steps))
    taken = values.take(chosen)
    is_array = taken.kind == ARRAY
    if is_array.any():
        # An array of one element counts as that element; others have no value of their own.
        owner, elements = taken.elements()
        alone = np.flatnonzero(np.bincount(owner, minlength=len(taken))[owner] == 1)
        others = is_array.copy()
        others[owner[alone]] = False
        if others.any():
            labels.append(LabelSet.of({META: f"s{meta}", name: "snil"}))
            counts.append(np.bincount(at[others], minlength=steps))
        at = np.concatenate([at[~is_array], at[owner[alone]]])
        taken = concat([taken.take(np.flatnonzero(~is_array)), elements.take(alone)])
    if len(taken):
        _values(labels, counts, name, meta, taken, at, top, steps)


def _values(
    labels: list[LabelSet], counts: list[Ints], name: str, meta: str, values: Values, at: Ints, top: int, steps: int
) -> None:
    groups, first = values.groups()
    totals = np.bincount(groups, minlength=len(first))
    for group in np.argsort(-totals, kind="stable")[:top].tolist():
        labels.append(LabelSet.of({META: f"s{meta}", name: encoded_label(*values.plain(int(first[group])))}))
        counts.append(np.bincount(at[groups == group], minlength=steps))


def block_of(labels: list[LabelSet], counts: list[Ints], steps: int) -> Block:
    if not labels:
        return Block.empty(steps)
    values = np.stack(counts).astype(np.float64)
    return Block(labels, values, np.ones(values.shape, bool), np.zeros(len(labels), bool))
