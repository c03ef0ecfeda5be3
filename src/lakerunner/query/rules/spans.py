"""TraceQL: which metrics of spans a rule could answer, and the normal form of their filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import prometheus_label
from lakerunner.model.signals.traces import TRACES
from lakerunner.model.time import NS_PER_S
from lakerunner.query.rules.rule import Candidate, Function
from lakerunner.query.rules.selection import Condition, Selection
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.patterns import whole
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.fields import SERVICE_NAME
from lakerunner.query.traceql.language import MetricPlan, compiled
from lakerunner.query.traceql.metrics import is_flat
from lakerunner.query.traceql.printer import field as field_text
from lakerunner.query.traceql.printer import field_expr, print_metric
from lakerunner.query.traceql.shown import all_fields

#: Fields that every span has, and whose values are texts: what is missing is empty. Labels of series keep them whole.
_TEXTS = frozenset(
    {
        SERVICE_NAME,
        *(ast.Intrinsic(name) for name in ("name", "status", "kind", "statusMessage", "instrumentation:name")),
    }
)
_NAMED = (ast.STRING, ast.STATUS, ast.KIND)
_FUNCTIONS = {
    "rate": Function.COUNT,
    "count_over_time": Function.COUNT,
    "sum_over_time": Function.SUM,
    "min_over_time": Function.MIN,
    "max_over_time": Function.MAX,
    "avg_over_time": Function.AVG,
    "quantile_over_time": Function.QUANTILE,
}
_DURATION = ast.Intrinsic("duration")
_SCOPES = ("span.", "resource.", "instrumentation.", "span:", ".")


@dataclass(frozen=True, slots=True)
class Part:
    """A metric of a calculation, as a rule may answer it; or why no rule can."""

    node: ast.Metric
    candidates: tuple[Candidate, ...] = ()
    refusal: str = ""
    within: object = None

    @property
    def text(self) -> str:
        return print_metric(self.node)


def parts_of(plan: MetricPlan) -> Iterator[Part]:
    pending: list[ast.MetricExpr] = [plan.root]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.MetricOp):
            pending += [node.right, node.left]
        elif isinstance(node, ast.Metric):
            yield _part(node, plan)


def selection_of(text: str) -> Selection:
    """The selection of a rule, which is one filter."""
    root = compiled(text).root
    if not isinstance(root, ast.Pipeline):
        raise BadInput("cannot read the rule: it selects no spans")
    found = _selection(root)
    if found is None:
        raise BadInput("cannot read the rule: it needs more than one span at a time")
    return found


def canonical_field(name: str) -> str:
    """A field as queries are printed.

    >>> canonical_field("span:name"), canonical_field("resource.service.name")
    ('name', 'resource.service.name')
    """
    root = compiled("{ " + name + " != nil }").root
    assert isinstance(root, ast.Pipeline)
    stage = root.stages[0]
    condition = stage.condition if isinstance(stage, ast.Filter) else None
    if isinstance(condition, ast.Binary) and isinstance(condition.left, ast.Attribute | ast.Intrinsic):
        return field_text(condition.left)
    raise BadInput(f"cannot read {name!r} as a field of spans")


def label_of(name: str) -> str:
    """The label that a dimension of a rule becomes.

    >>> label_of("resource.service.name"), label_of("span.http.route"), label_of("name")
    ('service_name', 'http_route', 'name')
    """
    for scope in _SCOPES:
        if name.startswith(scope) and len(name) > len(scope):
            return prometheus_label(name.removeprefix(scope).strip('"'))
    return prometheus_label(name)


def _part(node: ast.Metric, plan: MetricPlan) -> Part:
    aggregate = node.aggregate
    if plan.weighted:
        return Part(node, refusal="it counts spans by the probability with which they were kept")
    if isinstance(aggregate, ast.Compare) or aggregate.function not in _FUNCTIONS:
        name = "compare" if isinstance(aggregate, ast.Compare) else aggregate.function
        return Part(node, refusal=f"{name} does not follow from counts, sums, minima or maxima of parts")
    if aggregate.quantiles and aggregate.argument != _DURATION:
        return Part(
            node, refusal="quantiles of attributes leave out numbers below two, which a rule counts as any other"
        )
    selection = _selection(node.pipeline)
    if selection is None:
        return Part(node, refusal="it asks about whole traces; a rule sees one span at a time")
    candidate = Candidate(
        text=print_metric(node),
        signal=TRACES.name,
        selection=selection,
        function=_FUNCTIONS[aggregate.function],
        field="" if aggregate.argument is None else field_text(aggregate.argument),
        by=tuple(map(field_text, aggregate.by)),
        range_ns=plan.width_ns,
        divisor=plan.width_ns / NS_PER_S if aggregate.function == "rate" else 1.0,
        untyped=tuple(field_text(each) for each in aggregate.by if each not in _TEXTS),
        zeros=_FUNCTIONS[aggregate.function] is Function.COUNT,
        typed=True,
        quantiles=aggregate.quantiles,
    )
    return Part(node, (candidate,))


def _selection(pipeline: ast.Pipeline) -> Selection | None:
    """The filters of a pipeline that judges every span by itself."""
    if not is_flat(pipeline, all_fields(pipeline)):
        return None
    conditions: list[Condition] = []
    for stage in pipeline.stages:
        if isinstance(stage, ast.Filter) and stage.condition is not None:
            conditions += map(_condition, _conjuncts(stage.condition))
    return Selection((tuple(conditions),))


def _conjuncts(expr: ast.FieldExpr) -> Iterator[ast.FieldExpr]:
    # The parts of a condition on events speak of one event, and so they stay together.
    if isinstance(expr, ast.Binary) and expr.op == "&&" and not _of_items(expr):
        yield from _conjuncts(expr.left)
        yield from _conjuncts(expr.right)
    else:
        yield expr


def _of_items(expr: ast.FieldExpr) -> bool:
    match expr:
        case ast.Binary(left=left, right=right):
            return _of_items(left) or _of_items(right)
        case ast.Unary(operand=operand):
            return _of_items(operand)
        case ast.Attribute(scope=scope):
            return scope in ("event", "link")
        case ast.Intrinsic(name=name):
            return name.startswith(("event:", "link:"))
    return False


def _condition(expr: ast.FieldExpr) -> Condition:
    text = f"condition {field_expr(expr)}"
    match expr:
        case ast.Binary(
            op=("=" | "!=" | "=~" | "!~") as op, left=field, right=ast.Literal(type=kind, value=str(value))
        ):
            if field in _TEXTS and kind in _NAMED:
                plain = op in ("=", "!=") or (kind == ast.STRING and whole(value).texts is not None)
                if plain:
                    assert isinstance(field, ast.Attribute | ast.Intrinsic)
                    return Condition(text, matcher=Matcher(field_text(field), MatchKind(op), value))
    return Condition(text, other=expr)
