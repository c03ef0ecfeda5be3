"""Conditions in braces, evaluated for all spans at once.

A condition holds for a span when there are an event and a link of the span for which it holds: all fields of events in
it speak of the same event. A span without events has one whose fields are nil; so for links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakerunner.model.errors import LimitHit
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.check import fields_in
from lakerunner.query.traceql.fields import level_of
from lakerunner.query.traceql.operators import calculated, compared, matched, negated
from lakerunner.query.traceql.spans import Items, Spans
from lakerunner.query.traceql.values import BOOL, NIL, Mask, Values

#: Pairs of events and links of one evaluation.
_MOST_PAIRS = 20_000_000


@dataclass(frozen=True, slots=True)
class _Domain:
    """What a condition is evaluated for: spans, or the events and links of spans. -1 is none."""

    size: int
    span: Ints | None = None
    event: Ints | None = None
    link: Ints | None = None


class Conditions:
    """Evaluates the expressions of one query over some spans."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._items: dict[str, Items] = {}
        self._masks: dict[ast.FieldExpr, Mask] = {}

    def mask(self, condition: ast.FieldExpr | None) -> Mask:
        """The spans for which the condition holds."""
        if condition is None:
            return np.ones(len(self._spans), np.bool_)
        found = self._masks.get(condition)
        if found is None:
            domain = self._domain(condition)
            found = self._true(condition, domain)
            if domain.span is not None:
                found = np.bincount(domain.span[found], minlength=len(self._spans)) > 0
            self._masks[condition] = found
        return found

    def values(self, expr: ast.FieldExpr) -> Values:
        """The value of an expression for every span; of its first event or link, where it speaks of those."""
        domain = self._domain(expr)
        found = self._value(expr, domain).spread(domain.size)
        if domain.span is None:
            return found
        first = np.searchsorted(domain.span, np.arange(len(self._spans)))
        return found.take(first)

    def last_found(self, field: ast.Field, condition: ast.FieldExpr | None) -> Values:
        """A field of the last event or link of each span for which the condition holds; nil where there is none."""
        condition = ast.Binary("!=", field, ast.Literal(ast.NIL, None)) if condition is None else condition
        domain = self._domain(condition)
        assert domain.span is not None
        rows = np.flatnonzero(self._true(condition, domain))
        last = np.searchsorted(domain.span[rows], np.arange(len(self._spans)), side="right") - 1
        has = np.bincount(domain.span[rows], minlength=len(self._spans)) > 0
        if not len(rows):
            return Values.nil(len(self._spans))
        place = rows[np.maximum(last, 0)]
        return self._value(field, domain).take(place).only(has)

    def _level(self, level: str) -> Items:
        if level not in self._items:
            self._items[level] = self._spans.items(level)
        return self._items[level]

    def _domain(self, expr: ast.FieldExpr) -> _Domain:
        levels = {level_of(field) for field in fields_in(expr)} & {"event", "link"}
        size = len(self._spans)
        if not levels:
            return _Domain(size)
        span = np.arange(size)
        chosen: dict[str, Ints | None] = {"event": None, "link": None}
        for level in sorted(levels):
            counts = np.bincount(self._level(level).span, minlength=size)
            starts = np.cumsum(counts) - counts
            per_row = np.maximum(counts[span], 1)
            if int(per_row.sum()) > _MOST_PAIRS:
                raise LimitHit(f"cannot look at more than {_MOST_PAIRS:,} events and links at once")
            offset = np.arange(int(per_row.sum())) - np.repeat(np.cumsum(per_row) - per_row, per_row)
            spread = np.repeat(np.arange(len(span)), per_row)
            item = np.where(counts[span[spread]] > 0, starts[span[spread]] + offset, -1)
            chosen = {name: None if rows is None else rows[spread] for name, rows in chosen.items()}
            chosen[level] = item
            span = span[spread]
        return _Domain(len(span), span, chosen["event"], chosen["link"])

    def _true(self, expr: ast.FieldExpr, domain: _Domain) -> Mask:
        match expr:
            case ast.Binary("&&", left, right):
                return self._true(left, domain) & self._true(right, domain)
            case ast.Binary("||", left, right):
                return self._true(left, domain) | self._true(right, domain)
            case ast.Binary("=~" | "!~" as op, left, ast.Literal(_, pattern)):
                return matched(op, self._value(left, domain).spread(domain.size), str(pattern))
            case ast.Binary(op, left, right) if op in ast.COMPARISONS:
                return self._compared(op, left, right, domain)
        found = self._value(expr, domain).is_true
        return np.broadcast_to(found, domain.size)

    def _compared(self, op: str, left: ast.FieldExpr, right: ast.FieldExpr, domain: _Domain) -> Mask:
        for value, other in ((left, right), (right, left)):
            if isinstance(value, ast.Literal) and value.type == ast.NIL:
                if isinstance(other, ast.Literal):
                    return np.zeros(domain.size, np.bool_)
                nil = np.broadcast_to(self._value(other, domain).kind == NIL, domain.size)
                return nil if op == "=" else ~nil
        left, right = _full_id(left, right), _full_id(right, left)
        found = compared(op, self._value(left, domain), self._value(right, domain), domain.size)
        return np.broadcast_to(found, domain.size)

    def _value(self, expr: ast.FieldExpr, domain: _Domain) -> Values:
        match expr:
            case ast.Literal():
                return Values.of_literal(expr)
            case ast.Attribute() | ast.Intrinsic():
                return self._field(expr, domain)
            case ast.Unary("-", operand):
                return negated(self._value(operand, domain))
            case ast.Unary(_, operand):
                inner = self._value(operand, domain)
                known = inner.kind == BOOL
                return Values.numbers(BOOL, (known & ~inner.is_true).astype(np.float64), known)
            case ast.Binary(op, left, right) if op in ast.ARITHMETIC:
                return calculated(op, self._value(left, domain), self._value(right, domain), domain.size)
        return Values.numbers(BOOL, self._true(expr, domain).astype(np.float64))

    def _field(self, field: ast.Field, domain: _Domain) -> Values:
        level = level_of(field)
        if level not in ("event", "link"):
            found = self._spans.values(field)
            return found if domain.span is None else found.take(domain.span)
        rows = domain.event if level == "event" else domain.link
        assert rows is not None
        values = self._level(level).values.get(field)
        if values is None or not len(values):
            return Values.nil(domain.size)
        return values.take(np.where(rows >= 0, rows, 0)).only(rows >= 0)


def satisfying(where: ast.FieldExpr, values: Values) -> Mask:
    """Which values satisfy one of the comparisons of a field with literals, which are joined by `||`."""
    assert isinstance(where, ast.Binary)
    if where.op == "||":
        return satisfying(where.left, values) | satisfying(where.right, values)
    literal = where.right
    assert isinstance(literal, ast.Literal)
    if literal.type == ast.NIL:
        nil: Mask = values.kind == NIL
        return nil if where.op == "=" else ~nil
    if where.op in ("=~", "!~"):
        return matched(where.op, values, str(literal.value))
    return np.broadcast_to(compared(where.op, values, Values.of_literal(literal), len(values)), len(values))


def _full_id(expr: ast.FieldExpr, other: ast.FieldExpr) -> ast.FieldExpr:
    """An id in a comparison may lack its leading zeros."""
    width = {"trace:id": 32, "link:traceID": 32, "span:id": 16, "span:parentID": 16, "link:spanID": 16}
    if isinstance(expr, ast.Literal) and expr.type == ast.STRING and isinstance(other, ast.Intrinsic):
        text = str(expr.value)
        if other.name in width and text:
            return ast.Literal(ast.STRING, text.lower().rjust(width[other.name], "0"))
    return expr
