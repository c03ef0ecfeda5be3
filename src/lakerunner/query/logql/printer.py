"""Prints a tree as text on one line. The text parses to the same tree."""

from __future__ import annotations

import math

from lakerunner.query.logql.ast import (
    AndFilter,
    Binary,
    BytesFilter,
    CompareOp,
    Condition,
    Decolorize,
    Drop,
    DurationFilter,
    Expr,
    Extraction,
    Given,
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
    LineText,
    Logfmt,
    LogRange,
    LogSelector,
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
from lakerunner.query.logql.durations import format_go_duration
from lakerunner.query.logql.operators import PRECEDENCE, RIGHT_ASSOCIATIVE
from lakerunner.query.logql.sizes import format_size
from lakerunner.query.logql.stages.label_patterns import simplified
from lakerunner.query.series.go_format import general, plain
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.syntax.durations import format_duration_ms
from lakerunner.query.syntax.strings import quote
from lakerunner.query.vectors.matching import Cardinality

_NS_PER_MS = 1_000_000
#: Below and from these, Go prints numbers with an exponent.
_PLAIN_FROM, _PLAIN_BELOW = 1e-4, 1e21


def print_expr(expr: Expr) -> str:
    """The canonical text.

    >>> from lakerunner.query.logql.parser import parse
    >>> print_expr(parse('sum(rate({a="b"}|json|n>3KB[90s]))by(job)+1*2'))
    'sum by (job)(rate({a="b"} | json | n>3.0kB[1m30s])) + 2'
    """
    match expr:
        case LogSelector():
            return selector_text(expr)
        case RangeAggregate():
            param = "" if expr.param is None else f"{plain(expr.param)},"
            return f"{expr.op}({param}{range_text(expr.range)}){grouping_text(expr.grouping)}"
        case VectorAggregate():
            param = "" if expr.param is None else f"{expr.param},"
            return f"{expr.op}{grouping_text(expr.grouping)}({param}{print_expr(expr.expr)})"
        case Binary():
            return _binaries(expr)
        case Number(value=value):
            return number_text(value)
        case VectorLiteral(value=value):
            return f"vector({number_text(value)})"
        case LabelReplace():
            texts = (expr.target, expr.replacement, expr.source, expr.pattern)
            return f"label_replace({print_expr(expr.expr)},{','.join(map(quote, texts))})"
        case Given(number=number):
            return f"given({number})"


def _binaries(expr: Binary) -> str:
    """Print a chain of left-associative operators, with parentheses only where they are needed."""
    spine = [expr]
    while isinstance(left := spine[-1].left, Binary) and not _needs_parentheses(spine[-1], left, is_left=True):
        spine.append(left)
    pieces = [_operand(spine[-1], spine[-1].left, is_left=True)]
    for node in reversed(spine):
        right = _operand(node, node.right, is_left=False)
        pieces += (operator_text(node, ",", right), right)
    return " ".join(pieces)


def _operand(parent: Binary, expr: Expr, *, is_left: bool) -> str:
    text = print_expr(expr)
    return f"({text})" if isinstance(expr, Binary) and _needs_parentheses(parent, expr, is_left=is_left) else text


def _needs_parentheses(parent: Binary, child: Binary, *, is_left: bool) -> bool:
    outer, inner = PRECEDENCE[parent.op], PRECEDENCE[child.op]
    return inner < outer or (inner == outer and is_left == (parent.op in RIGHT_ASSOCIATIVE))


def operator_text(expr: Binary, comma: str, right: str) -> str:
    """An operator and what stands between it and its right side, whose text is given."""
    matching = expr.matching
    out = f"{expr.op} bool" if expr.return_bool else expr.op
    grouped = matching.cardinality in (Cardinality.MANY_TO_ONE, Cardinality.ONE_TO_MANY)
    if matching.on or matching.labels or grouped:
        out += f" {'on' if matching.on else 'ignoring'} ({comma.join(matching.labels)})"
    if grouped:
        out += " group_left" if matching.cardinality is Cardinality.MANY_TO_ONE else " group_right"
        # Without labels of its own, `group_left` would take a parenthesis for them.
        if matching.include or right.lstrip().startswith("("):
            out += f" ({comma.join(matching.include)})"
    return out


def number_text(value: float) -> str:
    """A number as Go prints it. What no literal can say is computed."""
    if math.isnan(value):
        return "(0 / 0)"
    if math.isinf(value):
        return "(10 ^ 999)" if value > 0 else "(-10 ^ 999)"
    return plain(value) if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW else general(value)


def grouping_text(grouping: Grouping | None, comma: str = ",") -> str:
    if grouping is None:
        return ""
    return f" {'without' if grouping.without else 'by'} ({comma.join(grouping.labels)})"


# -- ranges and selectors ----------------------------------------------------------------------------------------------


def range_text(logs: LogRange) -> str:
    unwrap = "" if logs.unwrap is None else " " + " ".join(unwrap_texts(logs.unwrap))
    offset = f" offset {format_go_duration(logs.offset_ns)}" if logs.offset_ns else ""
    return f"{selector_text(logs.selector)}{unwrap}[{format_duration_ms(logs.range_ns // _NS_PER_MS)}]{offset}"


def unwrap_texts(unwrap: Unwrap) -> list[str]:
    """The stage, and each filter after it."""
    label = f"{unwrap.conversion}({unwrap.label})" if unwrap.conversion else unwrap.label
    return [f"| unwrap {label}", *map(stage_text, unwrap.filters)]


def selector_text(selector: LogSelector) -> str:
    return " ".join((matchers_text(selector), *map(stage_text, selector.stages)))


def matchers_text(selector: LogSelector) -> str:
    return f"{{{', '.join(map(matcher_text, selector.matchers))}}}"


def matcher_text(matcher: Matcher) -> str:
    return f"{matcher.name}{matcher.kind}{quote(matcher.value)}"


# -- stages ------------------------------------------------------------------------------------------------------------


def stage_text(stage: Stage) -> str:
    match stage:
        case LineFilter(op=op, texts=texts):
            return f"{op} {' or '.join(map(_line_text, texts))}"
        case Json(extractions=extractions):
            return f"| json{_extractions(extractions)}"
        case Logfmt():
            strict = " --strict" if stage.strict else ""
            keep_empty = " --keep-empty" if stage.keep_empty else ""
            return f"| logfmt{strict}{keep_empty}{_extractions(stage.extractions)}"
        case Regexp(pattern=pattern):
            return f"| regexp {quote(pattern)}"
        case PatternParser(pattern=pattern):
            return f"| pattern {quote(pattern)}"
        case Unpack():
            return "| unpack"
        case LabelFilter(condition=condition):
            return f"| {condition_text(condition)}"
        case LineFormat(template=template):
            return f"| line_format {quote(template)}"
        case LabelFormat(assignments=assignments):
            parts = (f"{each.label}={quote(each.value) if each.is_template else each.value}" for each in assignments)
            return f"| label_format {','.join(parts)}"
        case Decolorize():
            return "| decolorize"
        case Drop(choices=choices):
            return f"| drop {','.join(map(_choice, choices))}"
        case Keep(choices=choices):
            return f"| keep {','.join(map(_choice, choices))}"


def condition_text(condition: Condition) -> str:
    match condition:
        case AndFilter(left=left, right=right):
            return f"( {condition_text(left)} , {condition_text(right)} )"
        case OrFilter(left=left, right=right):
            return f"( {condition_text(left)} or {condition_text(right)} )"
        case StringFilter(matcher=matcher):
            return _filter_text(matcher)
        case NumberFilter(label=label, op=op, value=value):
            return f"{label}{op}{plain(value)}"
        case DurationFilter(label=label, op=op, value_ns=value_ns):
            return f"{label}{op}{format_go_duration(value_ns)}"
        case BytesFilter(label=label, op=op, value_bytes=value_bytes):
            return f"{label}{op}{format_size(value_bytes)}"
        case IpFilter(label=label, op=op, addresses=addresses):
            return f"{label}{'=' if op is CompareOp.EQUAL else op}ip({quote(addresses)})"


def _filter_text(matcher: Matcher) -> str:
    """A matcher of a label filter. As Loki has it, a pattern that is no plain search is in backticks."""
    is_raw = matcher.kind is MatchKind.REGEX and simplified(matcher.value) is None and not set(matcher.value) & {*"`\r"}
    return f"{matcher.name}{matcher.kind}`{matcher.value}`" if is_raw else matcher_text(matcher)


def _line_text(text: LineText) -> str:
    return f"ip({quote(text.value)})" if text.ip else quote(text.value)


def _extractions(extractions: tuple[Extraction, ...]) -> str:
    parts = ",".join(f"{each.label}={quote(each.expression)}" for each in extractions)
    return f" {parts}" if parts else ""


def _choice(choice: LabelChoice) -> str:
    return choice.label if choice.matcher is None else matcher_text(choice.matcher)
