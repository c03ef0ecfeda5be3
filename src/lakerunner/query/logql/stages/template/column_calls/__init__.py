"""Vectorised forms of the functions that templates use most. Each is equal to its function by test."""

from __future__ import annotations

from lakerunner.query.logql.stages.template.column_calls import numbers, printing, regexps, texts, times
from lakerunner.query.logql.stages.template.column_calls.signature import Vectorised

#: By the function's name, or that of a time's method after a dot.
VECTORISED: dict[str, Vectorised] = {
    **texts.VECTORISED,
    **regexps.VECTORISED,
    **numbers.VECTORISED,
    **times.VECTORISED,
    **printing.VECTORISED,
}
#: Functions that may take long for each text: their columns are cut, so that the query can be stopped in between.
SLICED = frozenset(regexps.VECTORISED)
