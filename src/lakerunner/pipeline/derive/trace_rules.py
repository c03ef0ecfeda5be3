"""Selects spans for all rules of an org at once, with the conditions that TraceQL queries evaluate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.model.compute import Compute
from lakerunner.model.errors import LakeError
from lakerunner.model.time import NS_PER_S
from lakerunner.pipeline.derive.selected import Check, Coded, Ints, Selected, Services, distinct_values, rows_of_batch
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.check import fields_in
from lakerunner.query.traceql.conditions import Conditions, satisfying
from lakerunner.query.traceql.fields import SERVICE_NAME
from lakerunner.query.traceql.spans import Part, Spans, flat_columns
from lakerunner.query.traceql.values import BOOL, DURATION, NIL, Values
from lakerunner.rules.definitions import Materialize
from lakerunner.rules.matches import SpanMatch, span_match

Outcome = Selected | Exception
#: What a condition may raise over spans that it was not written for. A rule that fails never stops ingest.
_FAILURES = (LakeError, pa.ArrowException, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class _TraceRule:
    compute: Compute
    match: SpanMatch
    fields: tuple[ast.Field, ...]
    #: Comparisons of the service that every span of the rule satisfies.
    service: tuple[ast.FieldExpr, ...]

    @classmethod
    def of(cls, rule: Materialize) -> _TraceRule:
        match = span_match(rule)
        found = [] if match.condition is None else list(fields_in(match.condition))
        found += [field for field, _ in match.dimensions]
        found += [] if match.argument is None else [match.argument]
        return cls(rule.compute, match, tuple(dict.fromkeys(found)), tuple(_of_service(match.condition)))

    def accepts(self, service: str) -> bool:
        values = Values.of_literal(ast.Literal(ast.STRING, service))
        return all(bool(satisfying(each, values)[0]) for each in self.service)


class TraceRules:
    """The compiled rules of one version of an org's catalog."""

    def __init__(self, rules: Sequence[Materialize]) -> None:
        self._rules = [_TraceRule.of(rule) for rule in rules]

    def select(self, rows: pa.Table, check: Check) -> Iterator[tuple[int, Outcome]]:
        """The spans of each rule that has any, by the place of the rule."""
        if not rows.num_rows:
            return
        [batch] = rows.combine_chunks().to_batches()
        services = Services.of_batch(batch, "")
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, rule in enumerate(self._rules):
            if chosen := services.present(rule.accepts):
                groups.setdefault(chosen, []).append(place)
        for chosen, places in groups.items():
            yield from self._of_services(rows_of_batch(batch, services.rows_of(chosen)), places, check)

    def _of_services(self, batch: pa.RecordBatch, places: Sequence[int], check: Check) -> Iterator[tuple[int, Outcome]]:
        fields = tuple(dict.fromkeys(field for place in places for field in self._rules[place].fields))
        try:
            check()
            columns = [name for name in flat_columns(fields) if name in batch.schema.names]
            spans = Spans.flat(Part.of(batch.select(columns), fields))
            conditions = Conditions(spans)
        except _FAILURES as error:
            yield from ((place, error) for place in places)
            return
        for place in places:
            try:
                check()
                found = _measured(spans, conditions, self._rules[place])
            except _FAILURES as error:
                yield place, error
                continue
            if len(found.times_ns) or len(found.failed_ns):
                yield place, found


def _of_service(condition: ast.FieldExpr | None) -> Iterator[ast.FieldExpr]:
    """The comparisons of the service with a literal that the condition requires."""
    if not isinstance(condition, ast.Binary):
        return
    if condition.op == "&&":
        yield from _of_service(condition.left)
        yield from _of_service(condition.right)
    elif condition.op in ("=", "=~") and condition.left == SERVICE_NAME and _is_text(condition.right):
        yield condition


def _is_text(expr: ast.FieldExpr) -> bool:
    return isinstance(expr, ast.Literal) and expr.type == ast.STRING


def _measured(spans: Spans, conditions: Conditions, rule: _TraceRule) -> Selected:
    rows = np.flatnonzero(conditions.mask(rule.match.condition))
    amounts = None
    failed_ns: Ints = np.zeros(0, np.int64)
    if rule.match.argument is not None and rule.compute is Compute.DISTINCT:
        kept, amounts = distinct_values(_coded(conditions.values(rule.match.argument).take(rows)))
        rows = rows[kept]
    elif rule.match.argument is not None:
        found = conditions.values(rule.match.argument).take(rows)
        numeric = found.is_number
        amounts = np.where(found.kind == DURATION, found.number / NS_PER_S, found.number)[numeric]
        rows = rows[numeric]
        finite = np.isfinite(amounts)
        if not finite.all():
            failed_ns = spans.start_ns[rows[~finite]]
            rows, amounts = rows[finite], amounts[finite]
    dimensions = [_coded(conditions.values(field).take(rows)) for field, _ in rule.match.dimensions]
    return Selected(spans.start_ns[rows], dimensions, amounts, failed_ns)


def _coded(values: Values) -> Coded:
    """The values as labels; empty where they are nil."""
    if not len(values):
        return Coded.of(None, 0)
    codes, first = values.groups()
    words = pa.array([_word(*values.plain(row)) for row in first.tolist()], pa.string())
    return Coded.of(pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), words), len(values))


def _word(kind: int, value: object) -> str | None:
    if kind == NIL:
        return None
    if kind == BOOL:
        return "true" if value else "false"
    return str(value)
