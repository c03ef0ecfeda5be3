"""Label filters: `| level="error" and latency > 1s`.

A filter by number, duration or size drops entries without the label. It keeps an entry whose value it cannot read, and
marks it as failed, so that nothing disappears because of an odd value.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql import ast
from lakerunner.query.logql.addresses import parse_addresses
from lakerunner.query.logql.entries import ERROR, ERROR_DETAILS, Category, Check, Entries, Mask, encoded, plain, valid
from lakerunner.query.logql.stages import quantities
from lakerunner.query.logql.stages.address_search import mentioning
from lakerunner.query.logql.stages.fields import failed
from lakerunner.query.logql.stages.matching import matching
from lakerunner.query.series.matchers import Matcher

FILTER_ERROR = "LabelFilterErr"
_PARSER_ERRORS = pa.array(["JSONParserErr", "LogfmtParserErr"])

_COMPARE = {
    ast.CompareOp.EQUAL: operator.eq,
    ast.CompareOp.NOT_EQUAL: operator.ne,
    ast.CompareOp.LESS: operator.lt,
    ast.CompareOp.LESS_EQUAL: operator.le,
    ast.CompareOp.GREATER: operator.gt,
    ast.CompareOp.GREATER_EQUAL: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which entries a condition keeps, and why it could not judge some of those."""

    keep: Mask
    #: One text per entry; null where the condition could judge. None: everywhere.
    errors: pa.StringArray | None = None

    @property
    def unjudged(self) -> Mask:
        return np.zeros(len(self.keep), np.bool_) if self.errors is None else valid(self.errors)


def filtered(
    entries: Entries, condition: ast.Condition, check: Check, assigned: frozenset[str] = frozenset()
) -> Entries:
    kept, _ = with_verdict(entries, condition, check, assigned)
    return kept


def with_verdict(
    entries: Entries, condition: ast.Condition, check: Check, assigned: frozenset[str] = frozenset()
) -> tuple[Entries, Mask]:
    """The entries that a condition keeps, and which those were. `assigned`: labels that earlier stages name."""
    check()
    erred = failed(entries)
    if isinstance(condition, ast.IpFilter) and condition.label not in assigned:
        erred &= ~_parsed_before_failing(entries, condition.label)
    verdict = judged(entries, condition, erred, check)
    if verdict.errors is not None:
        entries = entries.with_error(verdict.unjudged & verdict.keep, FILTER_ERROR, verdict.errors)
    return entries.filtered(verdict.keep), verdict.keep


def _parsed_before_failing(entries: Entries, label: str) -> Mask:
    """The entries whose parser found the label, and failed later. As in Loki, it asked the filter when it found it."""
    found, errors = entries.columns.get((Category.PARSED, label)), entries.label(ERROR)
    if found is None or errors is None:
        return np.zeros(len(entries), np.bool_)
    by_parser: Mask = pc.is_in(plain(errors), value_set=_PARSER_ERRORS).to_numpy(zero_copy_only=False)
    return by_parser & valid(found)


def judged(entries: Entries, condition: ast.Condition, erred: Mask, check: Check) -> Verdict:
    """Judge all entries. `erred` are those that have failed already, if only in an earlier part of this filter."""
    match condition:
        case ast.AndFilter(left, right):
            first = judged(entries, left, erred, check)
            second = judged(entries, right, erred | first.unjudged, check)
            return Verdict(first.keep & second.keep, _first_error(first.errors, second.errors))
        case ast.OrFilter(left, right):
            first = judged(entries, left, erred, check)
            second = judged(entries, right, erred | first.unjudged, check)
            # What the left side keeps, the right side never sees.
            errors = second.errors
            if errors is not None:
                errors = pc.if_else(pa.array(first.keep), pa.scalar(None, pa.string()), errors)
            return Verdict(first.keep | second.keep, _first_error(first.errors, errors))
        case ast.StringFilter(matcher):
            return Verdict(_matched(entries, matcher, erred, check))
        case ast.IpFilter(label, op, addresses):
            return Verdict(_addressed(entries, label, op, addresses, erred, check))
        case ast.NumberFilter(label, op, value):
            return _compared(entries, label, op, value, quantities.number, check)
        case ast.DurationFilter(label, op, value_ns):
            return _compared(entries, label, op, value_ns, quantities.nanoseconds, check)
        case ast.BytesFilter(label, op, value_bytes):
            return _compared(entries, label, op, value_bytes, quantities.size, check)


def _first_error(left: pa.StringArray | None, right: pa.StringArray | None) -> pa.StringArray | None:
    return left if right is None else right if left is None else pc.coalesce(left, right)


def _matched(entries: Entries, matcher: Matcher, erred: Mask, check: Check) -> Mask:
    """An entry without the label counts as one with an empty value."""
    values = entries.label(matcher.name)
    if matcher.name == ERROR and (new := erred & ~failed(entries)).any():
        # `size > 1KB and __error__=""`: an earlier part of the filter could not read a value.
        known = pa.scalar(None, pa.string()) if values is None else plain(values)
        values = pc.if_else(pa.array(new), FILTER_ERROR, known)
    accepts_empty = bool(matching(pa.array([""]), matcher, check)[0])
    if values is None:
        return np.full(len(entries), accepts_empty)
    distinct = encoded(values)
    accepted = np.append(matching(distinct.dictionary, matcher, check), accepts_empty)
    indices = pc.fill_null(distinct.indices, len(accepted) - 1).to_numpy(zero_copy_only=False)
    found: Mask = accepted[indices]
    return found


def _compared(
    entries: Entries, label: str, op: ast.CompareOp, value: Any, read: quantities.Reader, check: Check
) -> Verdict:
    values = None if label in (ERROR, ERROR_DETAILS) else entries.label(label)
    if values is None:
        return Verdict(np.zeros(len(entries), np.bool_))
    found = quantities.quantities(values, read, check)
    keep = (_COMPARE[op](found.numbers, value) | found.unreadable) & found.present
    return Verdict(keep, found.errors)


def _addressed(entries: Entries, label: str, op: ast.CompareOp, addresses: str, erred: Mask, check: Check) -> Mask:
    """Only filters of texts see failed entries; others keep them."""
    values = entries.label(label)
    if values is None:
        return erred
    found = mentioning(plain(values), parse_addresses(addresses), check)
    if op is ast.CompareOp.NOT_EQUAL:
        found = ~found
    return erred | (found & valid(values))
