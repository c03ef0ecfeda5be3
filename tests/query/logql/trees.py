"""Random trees of LogQL, as the parser makes them: hypothesis strategies, from the leaves up."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from lakerunner.query.logql.ast import (
    AndFilter,
    Assignment,
    Binary,
    BytesFilter,
    CompareOp,
    Condition,
    Decolorize,
    Drop,
    DurationFilter,
    Expr,
    Extraction,
    Grouping,
    IpFilter,
    Json,
    Keep,
    LabelChoice,
    LabelFilter,
    LabelFormat,
    LabelReplace,
    LineFilter,
    LineFormat,
    LineOp,
    LineText,
    Logfmt,
    LogRange,
    LogSelector,
    MetricExpr,
    Number,
    NumberFilter,
    OrFilter,
    PatternParser,
    RangeAggregate,
    Regexp,
    Stage,
    StringFilter,
    Unpack,
    Unwrap,
    VectorAggregate,
    VectorLiteral,
)
from lakerunner.query.logql.functions import CONVERSIONS, LIMITING, RANGE_FUNCTIONS, VECTOR_FUNCTIONS, Unwrapping
from lakerunner.query.logql.operators import PRECEDENCE
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.vectors.matching import Cardinality, Matching
from lakerunner.query.vectors.operators import COMPARISONS, SET_OPERATORS

_MOST_NS = (1 << 63) - 1

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
#: The names of functions are names of labels too, where no parentheses follow them.
names = st.sampled_from(["app", "level", "__error__", "rate", "count", "duration", "ip", "x1", "größe", "MIXED_case"])
patterns = st.sampled_from(["a+", "(?i)err.*", "a|b", r"\d{3}", '[`"]', ".*"])
templates = st.sampled_from(["", "{{.a}}", '{{ .a | replace "x" "y" }}', "`{{ .b }}`\n"])
addresses = st.sampled_from(["10.0.0.1", "10.0.0.0/8", "::1-::ff", "2001:db8::/32"])
numbers = st.floats(allow_nan=False, allow_infinity=False)
params = st.floats(0, allow_nan=False, allow_infinity=False).map(abs)
durations_ns = st.integers(-_MOST_NS, _MOST_NS) | st.integers(-(10**10), 10**10)
ranges_ns = st.integers(0, 10**10).map(lambda value: value * 1_000_000)

matchers = st.builds(Matcher, names, st.sampled_from([MatchKind.EQUAL, MatchKind.NOT_EQUAL]), texts) | st.builds(
    Matcher, names, st.sampled_from([MatchKind.REGEX, MatchKind.NOT_REGEX]), patterns
)
_compare_ops = st.sampled_from(CompareOp)
_leaf_conditions: st.SearchStrategy[Condition] = st.one_of(
    st.builds(StringFilter, matchers),
    st.builds(NumberFilter, names, _compare_ops, numbers),
    st.builds(DurationFilter, names, _compare_ops, durations_ns),
    st.builds(BytesFilter, names, _compare_ops, st.integers(0, 1 << 53)),
    st.builds(IpFilter, names, st.sampled_from([CompareOp.EQUAL, CompareOp.NOT_EQUAL]), addresses),
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    _leaf_conditions,
    lambda inner: st.builds(AndFilter, inner, inner) | st.builds(OrFilter, inner, inner),
    max_leaves=5,
)
label_filters = st.builds(LabelFilter, conditions)


def _line_filters() -> st.SearchStrategy[LineFilter]:
    text = st.builds(LineText, texts)
    ip = st.builds(LineText, addresses, st.just(True))
    regex = st.builds(LineText, patterns)
    pattern = st.builds(LineText, st.sampled_from(["", "<_>", "a <_> b", "<", "no captures"]))

    def chains(op: LineOp, one: st.SearchStrategy[LineText], most: int) -> st.SearchStrategy[LineFilter]:
        return st.builds(LineFilter, st.just(op), st.lists(one, min_size=1, max_size=most).map(tuple))

    # The parser makes one filter of each text after a negated operator.
    return st.one_of(
        chains(LineOp.CONTAINS, text | ip, 3),
        chains(LineOp.LACKS, text | ip, 1),
        chains(LineOp.MATCHES, regex, 3),
        chains(LineOp.MATCHES_NOT, regex, 1),
        chains(LineOp.FITS, pattern, 3),
        chains(LineOp.FITS_NOT, pattern, 1),
    )


def _extractions(*expressions: str) -> st.SearchStrategy[tuple[Extraction, ...]]:
    return st.lists(st.builds(Extraction, names, st.sampled_from(expressions)), max_size=3).map(tuple)


_assignments = st.builds(Assignment, names, names, st.just(False)) | st.builds(
    Assignment, names, templates, st.just(True)
)
_formats = st.lists(
    _assignments.filter(lambda each: each.label != "__error__"),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each.label,
).map(tuple)
_choices = st.lists(
    st.builds(LabelChoice, names) | matchers.map(lambda matcher: LabelChoice(matcher.name, matcher)),
    min_size=1,
    max_size=3,
).map(tuple)
stages: st.SearchStrategy[Stage] = st.one_of(
    _line_filters(),
    st.builds(Json, _extractions("a", "a.b[0]", '["odd key"]')),
    st.builds(Logfmt, _extractions("a", '"http.status"'), st.booleans(), st.booleans()),
    st.builds(Regexp, st.sampled_from(["(?P<a>.*)", "x(?P<y>y)(?P<z>z)?"])),
    st.builds(PatternParser, st.sampled_from(["<a>", "<_> <b> `"])),
    st.builds(Unpack),
    label_filters,
    st.builds(LineFormat, templates),
    st.builds(LabelFormat, _formats),
    st.builds(Decolorize),
    st.builds(Drop, _choices),
    st.builds(Keep, _choices),
)


def _is_readable(some: list[Stage]) -> bool:
    """Whether the stages can be written: `drop a` before `!= "x"` would be read as `drop a!="x"`."""
    return not any(
        isinstance(first, Drop | Keep)
        and first.choices[-1].matcher is None
        and isinstance(then, LineFilter)
        and then.op in (LineOp.LACKS, LineOp.MATCHES_NOT)
        for first, then in itertools.pairwise(some)
    )


selectors = st.builds(
    LogSelector,
    st.lists(matchers, max_size=2).map(lambda some: (Matcher("app", MatchKind.EQUAL, "x"), *some)),
    st.lists(stages, max_size=4).filter(_is_readable).map(tuple),
)
groupings = st.builds(Grouping, st.lists(names, max_size=3).map(tuple), st.booleans())
unwraps = st.builds(
    Unwrap, names, st.sampled_from(["", *sorted(CONVERSIONS)]), st.lists(label_filters, max_size=2).map(tuple)
)


@st.composite
def range_aggregates(draw: st.DrawFn) -> RangeAggregate:
    op = draw(st.sampled_from(sorted(RANGE_FUNCTIONS)))
    takes = RANGE_FUNCTIONS[op]
    unwrapped = takes.unwrap is Unwrapping.ALWAYS or (takes.unwrap is Unwrapping.EITHER and draw(st.booleans()))
    offset_ns = draw(st.just(0) | durations_ns)
    logs = LogRange(draw(selectors), draw(ranges_ns), offset_ns, draw(unwraps) if unwrapped else None)
    param = draw(params) if takes.param else None
    return RangeAggregate(op, logs, param, draw(st.none() | groupings) if takes.grouping else None)


@st.composite
def _vector_aggregates(draw: st.DrawFn, inner: st.SearchStrategy[MetricExpr]) -> VectorAggregate:
    op = draw(st.sampled_from(sorted(VECTOR_FUNCTIONS)))
    param = draw(st.integers(1, 100)) if op in LIMITING else None
    takes_grouping = op not in ("approx_topk", "sort", "sort_desc")
    grouping = draw(st.none() | groupings) if takes_grouping else None
    return VectorAggregate(op, draw(inner), param, None if grouping == Grouping() else grouping)


@st.composite
def _binaries(draw: st.DrawFn, inner: st.SearchStrategy[MetricExpr]) -> Binary:
    op = draw(st.sampled_from(sorted(PRECEDENCE)))
    left, right = draw(inner), draw(inner)
    if op not in SET_OPERATORS:
        # Two numbers are computed while parsing; a set operation takes none.
        side = draw(st.sampled_from(["left", "right", "none"]))
        number = draw(st.builds(Number, st.floats()))
        left, right = (number if side == "left" else left), (number if side == "right" else right)
    return Binary(op, left, right, draw(_matchings(op)), op in COMPARISONS and draw(st.booleans()))


@st.composite
def _matchings(draw: st.DrawFn, op: str) -> Matching:
    many = Cardinality.MANY_TO_MANY if op in SET_OPERATORS else Cardinality.ONE_TO_ONE
    labels = draw(st.none() | st.lists(names, max_size=2).map(tuple))
    if labels is None:
        return Matching(many)
    on = draw(st.booleans())
    side = many if op in SET_OPERATORS else draw(st.sampled_from([many, *_GROUPED]))
    include = draw(st.lists(names, max_size=2).map(tuple)) if side in _GROUPED else ()
    return Matching(side, on, labels, include)


_GROUPED = (Cardinality.MANY_TO_ONE, Cardinality.ONE_TO_MANY)

vectors: st.SearchStrategy[MetricExpr] = st.recursive(
    range_aggregates() | st.builds(VectorLiteral, params),
    lambda inner: st.one_of(
        _vector_aggregates(inner), _binaries(inner), st.builds(LabelReplace, inner, texts, texts, texts, patterns)
    ),
    max_leaves=4,
)
queries: st.SearchStrategy[Expr] = st.one_of(vectors, selectors, st.builds(Number, st.floats()))
