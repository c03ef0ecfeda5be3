"""What a selector and its stages say about stored rows, as a predicate that the row scan can use.

The predicate accepts every row that the selector accepts, and perhaps more. So matchers and stages still apply to the
entries, except those that the predicate states exactly.

- A matcher on a label looks at the columns that the label may come from. If it accepts the empty value, it accepts
  entries without the label too, and says nothing about columns.
- A line filter says something about the stored line as long as no earlier stage changed it.
- A filter on a label that a parser may have made holds only if the value is in the line, as it is or escaped.
- Rows that are exact repeats of other rows are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.formats.attributes import OVERFLOW
from lakerunner.model.signals.logs import REPEAT
from lakerunner.query.logql import ast
from lakerunner.query.logql.ast import LineOp
from lakerunner.query.logql.line_patterns import parse_filter_pattern
from lakerunner.query.logql.records import ALWAYS, DEFAULTS, LINE, SERVICE_NAME, TEXT_COLUMNS, value_columns
from lakerunner.query.logql.selection import is_negated, text_leaf
from lakerunner.query.logql.stages.label_patterns import accepted_texts
from lakerunner.query.logql.stages.line_filters import is_address, telling
from lakerunner.query.scan.rows.conditions.predicate import (
    EVERYTHING,
    And,
    Column,
    Compare,
    Contains,
    Exists,
    Float,
    Int,
    Matches,
    Not,
    Op,
    Or,
    Predicate,
    Text,
)
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.patterns import whole

_LINE = Column(LINE)
_FIRST_OF_ITS_KIND = Not(Exists(Column(REPEAT)))
#: Values that a parser takes over as they are: a value with other characters may be written in the line in other ways.
_PLAIN = frozenset(map(chr, range(0x20, 0x7F))) - frozenset('"\\')
#: A line that has none of these writes plain values as they are. Parsers drop U+FFFD from values.
_ESCAPES = ("\\", "\ufffd")
#: More alternatives than this are not worth a search each.
_MAX_TEXTS = 20
#: Patterns that every text matches that is not empty: a dot matches newlines too.
_ANY_TEXT = frozenset({".+", ".*"})


@dataclass(frozen=True, slots=True)
class Pushed:
    """A predicate, and the matchers and stages that it does not replace."""

    predicate: Predicate
    matchers: tuple[Matcher, ...]
    stages: tuple[ast.Stage, ...]


def push_down(selector: ast.LogSelector) -> Pushed:
    parts: list[Predicate] = [_FIRST_OF_ITS_KIND]
    parts += [always(each) if each.name in ALWAYS else _matcher(each) for each in selector.matchers]
    matchers = tuple(each for each in selector.matchers if each.name not in ALWAYS)
    left: list[ast.Stage] = []
    #: What earlier stages may have made of the entry.
    line_is_stored, parsers, labels_are_known = True, list[ast.Stage](), True
    for stage in selector.stages:
        match stage:
            case ast.LineFilter() if line_is_stored:
                exact = line_predicate(stage)
                if exact is not None:
                    parts.append(exact)
                    continue
                parts.append(_implied_by_line_filter(stage))
            case ast.LabelFilter(condition) if labels_are_known:
                parts.append(_condition(condition, parsers))
            case ast.Json() | ast.Logfmt() | ast.Regexp() | ast.PatternParser() | ast.Unpack():
                parsers.append(stage)
                labels_are_known = labels_are_known and line_is_stored
                line_is_stored = line_is_stored and not isinstance(stage, ast.Unpack)
            case ast.LabelFormat():
                labels_are_known = False
            case ast.LineFormat() | ast.Decolorize():
                line_is_stored = False
            case _:
                # `drop` and `keep` take labels away: a filter that needs a value then fails all the more.
                pass
        left.append(stage)
    return Pushed(_all(parts), matchers, tuple(left))


def segment_matchers(selector: ast.LogSelector) -> tuple[Matcher, ...]:
    """Matchers on columns that every row of the selector satisfies: what segments are pruned by."""
    return tuple(
        matcher
        for matcher in selector.matchers
        if matcher.name == SERVICE_NAME and not matcher.matches(DEFAULTS[SERVICE_NAME]) and not matcher.matches("")
    )


# -- labels ----------------------------------------------------------------------------------------------------------


def always(matcher: Matcher) -> Predicate:
    """A matcher on a label that every entry has: the value of one column, or a default where it has none."""
    if matcher.kind is MatchKind.REGEX and matcher.value in _ANY_TEXT:
        return EVERYTHING
    column = Column(ALWAYS[matcher.name])
    leaf = text_leaf(column, matcher)
    found = Not(leaf) if is_negated(matcher) else leaf
    if not is_negated(matcher) and not matcher.matches("") and not matcher.matches(DEFAULTS[matcher.name]):
        # It holds for no column without a value.
        return leaf
    empty = Or((Not(Exists(column)), Compare(column, Op.EQUAL, Text(""))))
    return _any((empty, found)) if matcher.matches(DEFAULTS[matcher.name]) else _all((Not(empty), found))


def _matcher(matcher: Matcher) -> Predicate:
    """What rows must satisfy so that the label of their entry may match."""
    if matcher.matches(""):
        return EVERYTHING
    return _any(tuple(_may_match(Column(name), matcher) for name in value_columns(matcher.name)))


def _may_match(column: Column, matcher: Matcher) -> Predicate:
    if column.name == OVERFLOW:
        return Exists(column)
    if matcher.kind is MatchKind.EQUAL:
        return _equal(column, matcher.value)
    if matcher.kind is MatchKind.REGEX:
        if column.name in TEXT_COLUMNS:
            return text_leaf(column, matcher)
        texts = whole(matcher.value).texts
        if texts is not None and len(texts) <= _MAX_TEXTS:
            return _any(tuple(_equal(column, text) for text in sorted(texts)))
    # A number may be written in other ways than the scan writes it, so that the scan cannot try a pattern.
    return Exists(column)


def _may_equal(name: str, texts: Sequence[str]) -> Predicate:
    """What rows must satisfy so that the label of their entry may have one of the values."""
    columns = [Column(column) for column in value_columns(name)]
    return _any(
        tuple(
            Exists(column) if column.name == OVERFLOW else _equal(column, text) for column in columns for text in texts
        )
    )


def _equal(column: Column, text: str) -> Predicate:
    as_text = Compare(column, Op.EQUAL, Text(text))
    if column.name in TEXT_COLUMNS:
        return as_text
    try:
        number = float(text)
    except ValueError:
        return as_text
    if not math.isfinite(number):
        return Exists(column)
    return Or((as_text, Compare(column, Op.EQUAL, Int(int(text)) if text.isdecimal() else Float(number))))


# -- lines -----------------------------------------------------------------------------------------------------------


def line_predicate(stage: ast.LineFilter) -> Predicate | None:
    """The filter as a predicate, if it can be stated exactly. A row without a message has an empty line."""
    stage = telling(stage)
    if any(is_address(stage, text) or not text.value for text in stage.texts):
        return None
    values = [text.value for text in stage.texts]
    match stage.op:
        case LineOp.CONTAINS:
            return _any(tuple(Contains(_LINE, value) for value in values))
        case LineOp.LACKS:
            return Not(_any(tuple(Contains(_LINE, value) for value in values)))
        case LineOp.MATCHES:
            return _any(tuple(map(_matches, values)))
        case LineOp.MATCHES_NOT:
            return Not(_any(tuple(map(_matches, values))))
        case _:
            return None


def _matches(pattern: str) -> Predicate:
    found = Matches(_LINE, pattern, anchored=False)
    return Or((found, Not(Exists(_LINE)))) if found.compiled.accepts("") else found


def _implied_by_line_filter(stage: ast.LineFilter) -> Predicate:
    """What follows from a filter that is not stated exactly."""
    if stage.op is not LineOp.FITS:
        return EVERYTHING
    return _any(tuple(_fits(text.value) for text in stage.texts))


def _fits(pattern: str) -> Predicate:
    return _all([Contains(_LINE, part) for part in parse_filter_pattern(pattern) if isinstance(part, str)])


# -- filters on labels -------------------------------------------------------------------------------------------------


def _condition(condition: ast.Condition, parsers: Sequence[ast.Stage]) -> Predicate:
    match condition:
        case ast.AndFilter(left, right):
            return _all((_condition(left, parsers), _condition(right, parsers)))
        case ast.OrFilter(left, right):
            return _any((_condition(left, parsers), _condition(right, parsers)))
        case ast.StringFilter(matcher):
            return _may_have(matcher, parsers)
        case _:
            return EVERYTHING


def _may_have(matcher: Matcher, parsers: Sequence[ast.Stage]) -> Predicate:
    """What rows must satisfy so that a filter of texts may hold: the value is stored, or a parser finds it."""
    texts = accepted_texts(matcher)
    default = DEFAULTS.get(matcher.name)
    if texts is None or len(texts) > _MAX_TEXTS or "" in texts or default in texts or matcher.name.startswith("__"):
        return EVERYTHING
    stored = _may_equal(matcher.name, texts)
    return _any((stored, _in_line(texts, parsers))) if parsers else stored


def _in_line(texts: Sequence[str], parsers: Sequence[ast.Stage]) -> Predicate:
    """What lines must satisfy so that a parser may have found one of the texts in them."""
    if not all(map(_PLAIN.issuperset, texts)):
        return EVERYTHING
    copied = all(isinstance(parser, ast.Regexp | ast.PatternParser) for parser in parsers)
    wanted = (*texts, *(() if copied else _ESCAPES))
    return _any(tuple(Contains(_LINE, text) for text in wanted))


# -- trees without needless parts ------------------------------------------------------------------------------------


def _all(parts: Sequence[Predicate]) -> Predicate:
    left = tuple(part for part in dict.fromkeys(parts) if part != EVERYTHING)
    return left[0] if len(left) == 1 else And(left)


def _any(parts: tuple[Predicate, ...]) -> Predicate:
    if EVERYTHING in parts:
        return EVERYTHING
    distinct = tuple(dict.fromkeys(parts))
    return distinct[0] if len(distinct) == 1 else Or(distinct)
