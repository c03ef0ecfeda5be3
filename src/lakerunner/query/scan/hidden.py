"""Conditions of hidden rows as JSON: matchers on the labels of series, or a predicate on rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import orjson

from lakerunner.model.errors import BadInput
from lakerunner.model.hidden import HiddenRows
from lakerunner.model.signal import Signal
from lakerunner.query.scan.rows.conditions.predicate import (
    And,
    Column,
    Compare,
    Op,
    Predicate,
    Time,
    from_json,
    to_json,
)
from lakerunner.query.series.matchers import Matcher, MatchKind


def matchers_condition(matchers: Sequence[Matcher]) -> str:
    return orjson.dumps({"matchers": [[each.name, each.kind.value, each.value] for each in matchers]}).decode()


def predicate_condition(predicate: Predicate) -> str:
    return orjson.dumps({"predicate": to_json(predicate)}).decode()


@functools.lru_cache(maxsize=256)
def matchers_of(condition: str) -> tuple[Matcher, ...]:
    try:
        found = orjson.loads(condition)["matchers"]
        return tuple(Matcher(str(name), MatchKind(kind), str(value)) for name, kind, value in found)
    except (ValueError, KeyError, TypeError) as reason:
        raise BadInput(f"cannot read the condition of a deletion: {reason!r}") from None


@functools.lru_cache(maxsize=256)
def _predicate_of(condition: str) -> Predicate:
    try:
        return from_json(orjson.loads(condition)["predicate"])
    except (ValueError, KeyError, TypeError) as reason:
        raise BadInput(f"cannot read the condition of a deletion: {reason!r}") from None


@functools.lru_cache(maxsize=256)
def hidden_predicate(hidden: HiddenRows, time_column: str) -> Predicate:
    """What hidden rows satisfy, their time included."""
    time = Column(time_column)
    return And(
        (
            Compare(time, Op.GREATER_EQUAL, Time(hidden.start_ns)),
            Compare(time, Op.LESS, Time(hidden.end_ns)),
            _predicate_of(hidden.condition),
        )
    )


def hidden_predicates(hidden: Sequence[HiddenRows], signal: Signal) -> tuple[Predicate, ...]:
    return tuple(hidden_predicate(each, signal.time_column) for each in hidden)
