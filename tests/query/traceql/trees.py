"""Random trees of TraceQL, as the parser makes them."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from lakerunner.query.traceql import ast
from lakerunner.query.traceql.fields import SPELLINGS

_NAMES = st.one_of(
    st.sampled_from(["http.status_code", "x", "a b", 'q"uote', "back\\slash", "größe", "a.b-c/d", "span.inner"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=6),
)
_FIELDS = st.one_of(
    st.builds(ast.Attribute, st.sampled_from(ast.SCOPES), _NAMES),
    st.builds(ast.Attribute, st.sampled_from(["span", "resource"]), _NAMES, st.just(True)),
    st.sampled_from([ast.Intrinsic(name) for name in sorted({*SPELLINGS.values()})]),
)
_WHOLE = st.integers(-(1 << 62), 1 << 62)
_REAL = st.floats(allow_nan=False, allow_infinity=False)
_LITERALS = st.one_of(
    st.builds(ast.Literal, st.just(ast.STRING), st.text(max_size=8).filter(lambda text: "\x00" not in text)),
    st.builds(ast.Literal, st.just(ast.INT), _WHOLE),
    st.builds(ast.Literal, st.just(ast.FLOAT), _REAL.filter(lambda number: math.copysign(1, number) > 0 or number)),
    st.builds(ast.Literal, st.just(ast.DURATION), _WHOLE),
    st.builds(ast.Literal, st.just(ast.BOOL), st.booleans()),
    st.builds(ast.Literal, st.just(ast.STATUS), st.sampled_from(ast.STATUSES)),
    st.builds(ast.Literal, st.just(ast.KIND), st.sampled_from(ast.KINDS)),
    st.just(ast.Literal(ast.NIL, None)),
)
_OPS = st.sampled_from([*ast.COMPARISONS, *ast.ARITHMETIC, *ast.LOGIC])
EXPRESSIONS = st.recursive(
    st.one_of(_LITERALS, _FIELDS),
    lambda inner: st.one_of(
        st.builds(ast.Binary, _OPS, inner, inner),
        st.builds(ast.Unary, st.sampled_from(["!", "-"]), inner.filter(lambda expr: not isinstance(expr, ast.Literal))),
    ),
    max_leaves=8,
)
_FILTERS = st.builds(ast.Filter, st.one_of(st.none(), EXPRESSIONS))
SPANSETS = st.recursive(
    _FILTERS,
    lambda inner: st.builds(ast.SpansetOp, st.sampled_from([*ast.LOGIC, *ast.STRUCTURAL]), inner, inner),
    max_leaves=4,
)
_AGGREGATES = st.one_of(
    st.just(ast.Aggregate("count", None)),
    st.builds(ast.Aggregate, st.sampled_from(["avg", "min", "max", "sum"]), EXPRESSIONS),
)
_NUMBERS = st.builds(ast.Literal, st.just(ast.INT), st.integers(0, 1000))
_SCALAR_PIPELINES = st.builds(ast.ScalarPipeline, SPANSETS.map(lambda first: (first,)), _AGGREGATES)


def _calculated(leaves: st.SearchStrategy[ast.Scalar]) -> st.SearchStrategy[ast.Scalar]:
    operators = st.sampled_from(ast.ARITHMETIC)
    return st.recursive(leaves, lambda inner: st.builds(ast.ScalarOp, operators, inner, inner), max_leaves=3)


def _has_aggregate(scalar: ast.Scalar) -> bool:
    """Whether it says something of spans."""
    if isinstance(scalar, ast.ScalarOp):
        return _has_aggregate(scalar.left) or _has_aggregate(scalar.right)
    return not isinstance(scalar, ast.Literal)


# A pipeline is calculated with pipelines only.
_SCALARS = st.one_of(_calculated(st.one_of(_AGGREGATES, _NUMBERS)), _calculated(_SCALAR_PIPELINES))
_STAGES = st.one_of(
    SPANSETS,
    st.builds(ast.ScalarFilter, st.sampled_from(ast.COMPARISONS[:6]), _SCALARS, _SCALARS).filter(
        lambda stage: _has_aggregate(stage.left) or _has_aggregate(stage.right)
    ),
    st.builds(ast.GroupBy, EXPRESSIONS),
    st.just(ast.Coalesce()),
    st.builds(ast.Select, st.lists(_FIELDS, min_size=1, max_size=3).map(tuple)),
)
PIPELINES = st.builds(lambda first, rest: ast.Pipeline((first, *rest)), SPANSETS, st.lists(_STAGES, max_size=3))
_METRIC_AGGREGATES = st.one_of(
    st.builds(ast.MetricAggregate, st.sampled_from(["rate", "count_over_time"]), st.none(), st.just(())),
    st.builds(
        ast.MetricAggregate,
        st.sampled_from([f"{name}_over_time" for name in ("min", "max", "avg", "sum", "histogram")]),
        _FIELDS,
        st.lists(_FIELDS, max_size=2).map(tuple),
    ),
    st.builds(
        ast.MetricAggregate,
        st.just("quantile_over_time"),
        _FIELDS,
        st.just(()),
        st.lists(st.floats(0, 1).map(abs), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(ast.Compare, _FILTERS, st.integers(1, 1000), st.just(0), st.just(0)),
)
_THEN = st.lists(
    st.one_of(
        st.builds(ast.Ranked, st.sampled_from(["topk", "bottomk"]), st.integers(1, 9)),
        st.builds(ast.ValueFilter, st.sampled_from(ast.COMPARISONS[:6]), st.floats(0, 1e9).map(abs)),
    ),
    max_size=2,
).map(tuple)


def _metric(pipeline: ast.Pipeline, aggregate: object, then: tuple[ast.SecondStage, ...]) -> ast.Metric:
    assert isinstance(aggregate, ast.MetricAggregate | ast.Compare)
    return ast.Metric(pipeline, aggregate, () if isinstance(aggregate, ast.Compare) else then)


METRICS = st.builds(_metric, PIPELINES, _METRIC_AGGREGATES, _THEN)
_OPERANDS = METRICS.filter(lambda metric: not isinstance(metric.aggregate, ast.Compare))
_METRIC_NUMBERS = st.builds(ast.MetricNumber, st.floats(0, 1e9).map(abs))
_CALCULATIONS = st.builds(
    ast.MetricOp, st.sampled_from(["+", "-", "*", "/"]), _OPERANDS, st.one_of(_OPERANDS, _METRIC_NUMBERS), _THEN
)
_HINTS = st.lists(st.builds(ast.Hint, st.sampled_from(["exemplars", "sample"]), _LITERALS), max_size=2).map(tuple)
QUERIES = st.builds(ast.Query, st.one_of(PIPELINES, METRICS, _CALCULATIONS), _HINTS)
