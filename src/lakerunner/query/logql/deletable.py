"""Rows that may be deleted: a selector with line filters, as a predicate that decides every stored row exactly.

A label is looked for where Loki would find it: one of the stream in the attributes of the resource; any other in the
attributes of scope and resource, in the fields, then in the attributes of the record, of which the first one counts.
"""

from __future__ import annotations

from lakerunner.model.signals.traces import TRACES
from lakerunner.query.logql import ast
from lakerunner.query.logql.parser import parse, parse_matchers
from lakerunner.query.logql.pushdown import always, line_predicate, segment_matchers
from lakerunner.query.logql.records import ALWAYS, FIELDS, STREAM_LABELS
from lakerunner.query.logql.selection import is_negated
from lakerunner.query.scan.rows.conditions.predicate import (
    LEVELS,
    And,
    Compare,
    Exists,
    FirstOf,
    Matches,
    Not,
    Op,
    Or,
    Predicate,
    Ref,
    Text,
)
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.syntax.errors import ParseError


def log_predicate(text: str) -> tuple[Predicate, tuple[Matcher, ...]]:
    """The predicate of a selector with line filters, and the matchers by which segments are chosen."""
    expr = parse(text)
    if not isinstance(expr, ast.LogSelector):
        raise _refused(text, 0, len(text), "only a log selector with line filters can be deleted")
    parts = [always(each) if each.name in ALWAYS else _matches(_log_label(each.name), each) for each in expr.matchers]
    for stage in expr.stages:
        exact = line_predicate(stage) if isinstance(stage, ast.LineFilter) else None
        if exact is None:
            raise _refused(text, stage.start, stage.end, "only line filters on plain texts may follow the selector")
        parts.append(exact)
    return And(tuple(parts)), segment_matchers(expr)


def span_predicate(text: str) -> tuple[Predicate, tuple[Matcher, ...]]:
    """The predicate of matchers on columns and attributes of spans."""
    matchers = parse_matchers(text)
    # Segments are not chosen by service: the index has no entry for spans without one.
    return And(tuple(_matches(_span_label(each.name), each) for each in matchers)), ()


def _log_label(name: str) -> Ref:
    if name in STREAM_LABELS:
        return FirstOf((f"resource_{name}",))
    return FirstOf((f"scope_{name}", f"resource_{name}", *FIELDS.get(name, ())[:1], f"attr_{name}"))


def _span_label(name: str) -> Ref:
    if name in TRACES.rows.schema().names:
        return FirstOf((name,))
    return FirstOf(tuple(f"{level}_{name}" for level in LEVELS))


def _matches(ref: Ref, matcher: Matcher) -> Predicate:
    """A row without the label counts as one with an empty value."""
    leaf: Predicate
    if matcher.kind in (MatchKind.EQUAL, MatchKind.NOT_EQUAL):
        leaf = Compare(ref, Op.EQUAL, Text(matcher.value))
    else:
        leaf = Matches(ref, matcher.value)
    if is_negated(matcher):
        return Not(leaf) if matcher.matches("") else And((Exists(ref), Not(leaf)))
    return Or((Not(Exists(ref)), leaf)) if matcher.matches("") else leaf


def _refused(text: str, start: int, end: int, reason: str) -> ParseError:
    return ParseError(reason, text=text, start=start, end=end, language="LogQL")
