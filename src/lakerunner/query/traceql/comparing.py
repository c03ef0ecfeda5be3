"""`compare()`: how often each value of each attribute occurs among the selected spans and among the others.

The numbers are Tempo's. It reads a field that the filter names twice, and counts it twice; and a field of a resource
once more for each span of that resource in the trace that it counted before.
"""

from __future__ import annotations

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.fields import level_of
from lakerunner.query.traceql.labels import encoded_label
from lakerunner.query.traceql.printer import field as field_text
from lakerunner.query.traceql.shown import shown_fields
from lakerunner.query.traceql.spans import Spans
from lakerunner.query.traceql.spansets import PipelineRun
from lakerunner.query.traceql.values import ARRAY, NIL, Values, concat

META = "__meta_type"
_INTRINSICS = (
    *("instrumentation:name", "instrumentation:version", "kind", "name", "rootName", "rootServiceName"),
    *("span:childCount", "status", "statusMessage"),
)
INTRINSIC_FIELDS = tuple(map(ast.Intrinsic, _INTRINSICS))


def compared(
    spans: Spans,
    run: PipelineRun,
    rows: Ints,
    place: Ints,
    pipeline: ast.Pipeline,
    compare: ast.Compare,
    steps: int,
) -> tuple[list[LabelSet], list[Ints]]:
    """The series of chosen rows, whose steps are in `place`."""
    selected = run.conditions.mask(compare.selection.condition)[rows]
    if compare.end_ns:
        starts = spans.start_ns[rows]
        selected = selected & (starts >= compare.start_ns) & (starts < compare.end_ns)
    labels: list[LabelSet] = []
    counts: list[Ints] = []
    fields: list[ast.Field] = [*INTRINSIC_FIELDS, *spans.attributes()]
    again = _counted_again(spans, run, rows, pipeline)
    for field in fields:
        values = spans.values(field).take(rows)
        # A span that counts several times stands in as many places.
        places = np.repeat(np.arange(len(rows)), again[field] + 1) if field in again else np.arange(len(rows))
        for meta, among in (("baseline", ~selected), ("selection", selected)):
            chosen = places[among[places]]
            _add(labels, counts, field_text(field), meta, values.take(chosen), place[chosen], compare.top, steps)
    return labels, counts


def _counted_again(spans: Spans, run: PipelineRun, rows: Ints, pipeline: ast.Pipeline) -> dict[ast.Field, Ints]:
    """How many times more than once a span counts for the fields that the filter names and finds."""
    again: dict[ast.Field, Ints] = {}
    for shown in shown_fields(pipeline):
        if level_of(shown.field) in ("event", "link"):
            continue
        found = run.conditions.values(shown.field).take(rows).kind != NIL
        if shown.where is not None:
            found &= run.conditions.mask(shown.where)[rows]
        times = found.astype(np.int64)
        if isinstance(shown.field, ast.Attribute) and shown.field.scope == "resource":
            times = np.where(found, _running_count(*_batches(spans, rows), times), 0)
        again[shown.field] = times
    return again


def _batches(spans: Spans, rows: Ints) -> tuple[Ints, Ints]:
    """A number for every resource of every trace, and the order in which Tempo keeps spans: by resource and scope."""
    resource = spans.trace[rows]
    names = (ast.Intrinsic("instrumentation:name"), ast.Intrinsic("instrumentation:version"))
    attributes = spans.attributes()
    for field in (field for field in attributes if field.scope == "resource"):
        resource = _refined(resource, spans, field, rows)
    scope = resource
    scoped: list[ast.Field] = [*names, *(field for field in attributes if field.scope == "instrumentation")]
    for named in scoped:
        scope = _refined(scope, spans, named, rows)
    _, first, of_row = np.unique(scope, return_index=True, return_inverse=True)
    return resource, np.lexsort((np.arange(len(rows)), first[of_row], resource))


def _refined(group: Ints, spans: Spans, field: ast.Field, rows: Ints) -> Ints:
    """A number for every pair of a group and a value of the field."""
    codes, _ = spans.values(field).take(rows).groups()
    found: Ints
    _, found = np.unique(group * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return found


def _running_count(group: Ints, order: Ints, times: Ints) -> Ints:
    """The sum of `times` in each row's group up to and with the row, in an order that keeps groups together."""
    ordered, running = group[order], np.cumsum(times[order])
    first = np.searchsorted(ordered, ordered)
    before = np.where(first > 0, running[np.maximum(first - 1, 0)], 0)
    out = np.empty_like(running)
    out[order] = running - before
    return out


def _add(
    labels: list[LabelSet],
    counts: list[Ints],
    name: str,
    meta: str,
    values: Values,
    place: Ints,
    top: int,
    steps: int,
) -> None:
    chosen = np.flatnonzero(values.kind != NIL)
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
