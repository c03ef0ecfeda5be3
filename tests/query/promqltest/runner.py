"""Runs a script: every eval as written, as a step of a range, and pinned with `@` at other times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lakerunner.model.errors import LakeError
from lakerunner.query.promql.ast import (
    Aggregate,
    Binary,
    Call,
    Expr,
    MatrixSelector,
    Paren,
    Subquery,
    Unary,
    VectorSelector,
    children,
)
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.printer import print_expr
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult, QueryResult, ScalarResult, Value, VectorResult
from tests.query.engine import Engine
from tests.query.promqltest.compare import Mismatch, check_annotations, check_value
from tests.query.promqltest.loading import load_into
from tests.query.promqltest.script import Clear, Eval, Expectation, Load, Unreadable, read_script

#: Makes the source to query from what was loaded, all of which `loaded.select([], start, end)` gives.
SourceFactory = Callable[[MemorySource], SeriesSource]

_MINUTE_MS = 60_000
_QUERY_CONTEXT = re.compile(r"(start|end|range|step)\(\)")
#: Functions whose results change with the evaluation time though their arguments do not.
_TIME_DEPENDENT = frozenset(
    [
        "days_in_month",
        "day_of_month",
        "day_of_week",
        "day_of_year",
        "end",
        "hour",
        "minute",
        "month",
        "year",
        "predict_linear",
        "range",
        "start",
        "step",
        "time",
        "timestamp",
    ]
)


@dataclass(frozen=True)
class Outcome:
    path: Path
    line: int
    expr: str
    failure: str | None


def run_script(path: Path, factory: SourceFactory = lambda loaded: loaded) -> Iterator[Outcome]:
    loaded, source = MemorySource(), None
    for command in read_script(path):
        if isinstance(command, Clear):
            loaded, source = MemorySource(), None
        elif isinstance(command, Load):
            source = None
            try:
                load_into(loaded, command)
            except LakeError as reason:
                yield Outcome(path, command.line, "load", str(reason))
        elif isinstance(command, Unreadable):
            yield Outcome(path, command.line, command.text, command.reason)
        else:
            source = source or factory(loaded)
            yield Outcome(path, command.line, command.expr, _failure(Engine(source), command))


def _failure(engine: Engine, command: Eval) -> str | None:
    try:
        if command.at_ms is None:
            _run_range(engine, command)
        else:
            _run_instant(engine, command)
    except Mismatch as reason:
        return str(reason)
    except Exception as reason:  # noqa: BLE001 - a crash of the engine is a failure of the case, not of the run
        return f"{type(reason).__name__}: {reason}"
    return None


def _run_range(engine: Engine, command: Eval) -> None:
    result = _result(command, lambda: engine.range(command.expr, command.start_ms, command.end_ms, command.step_ms))
    if result is not None:
        check_annotations(command, result)
        check_value(command, result.value)


def _result(command: Eval, run: Callable[[], QueryResult]) -> QueryResult | None:
    """The result; None where a failure was expected and came."""
    try:
        result = run()
    except LakeError as reason:
        if not command.fail:
            raise
        for expectation in command.fail:
            if not expectation.accepts(reason.message):
                raise Mismatch(f"expected failure {expectation}, got {reason.message}") from None
        return None
    if command.fail:
        raise Mismatch(f"expected a failure, got {result.value}")
    return result


def _run_instant(engine: Engine, command: Eval) -> None:
    assert command.at_ms is not None
    at_ms = command.end_ms if command.range_vector else command.at_ms
    for expr, time_ms in [(command.expr, at_ms), *_pinned(command.expr, at_ms)]:
        try:
            # Texts say where in the query, and pinning moves things: messages are compared as the script writes it.
            _run_at(engine, command if expr == command.expr else _without_texts(command), expr, time_ms)
        except Mismatch as reason:
            if expr == command.expr and time_ms == at_ms:
                raise
            raise Mismatch(f"as {expr} at {time_ms} ms: {reason}") from None


def _without_texts(command: Eval) -> Eval:
    """The same expectations, whatever the words."""
    return replace(
        command,
        fail=[Expectation()] if command.fail else [],
        warn=[Expectation()] if command.warn else [],
        info=[Expectation()] if command.info else [],
    )


def _run_at(engine: Engine, command: Eval, expr: str, time_ms: int) -> None:
    result = _result(command, lambda: engine.instant(expr, time_ms))
    if result is None:
        return
    check_annotations(command, result)
    check_value(command, result.value)
    if command.range_vector or command.string is not None or _QUERY_CONTEXT.search(expr):
        return
    if isinstance(result.value, MatrixResult):
        return
    ranged = engine.range(expr, time_ms - _MINUTE_MS, time_ms + _MINUTE_MS, _MINUTE_MS)
    if command.ordered:
        return
    assert isinstance(ranged.value, MatrixResult)
    step = _at_step(ranged.value, time_ms)
    value: Value = ScalarResult(time_ms, float(step.values[0])) if isinstance(result.value, ScalarResult) else step
    try:
        check_value(command, value)
    except Mismatch as reason:
        raise Mismatch(f"as a step of a range: {reason}") from None


def _at_step(matrix: MatrixResult, time_ms: int) -> VectorResult:
    labels, values, histograms = [], [], []
    for one in matrix:
        for time, number in zip(one.timestamps_ms.tolist(), one.values.tolist(), strict=True):
            if time == time_ms:
                labels.append(one.labels)
                values.append(number)
                histograms.append(None)
        for time, histogram in zip(one.histogram_timestamps_ms.tolist(), one.histograms, strict=True):
            if time == time_ms:
                labels.append(one.labels)
                values.append(0.0)
                histograms.append(histogram)
    return VectorResult(time_ms, labels, np.array(values), histograms)


def _pinned(text: str, at_ms: int) -> list[tuple[str, int]]:
    """The query with every selector pinned to its time: at any other time it must give the same."""
    expr = parse(text)
    if any(isinstance(node, Call) and node.name in _TIME_DEPENDENT for node in _nodes(expr)):
        return []
    times = [-1000, 0, 1000] if at_ms == 0 else [-10 * at_ms, 0, at_ms // 5, at_ms, 10 * at_ms]
    pinned = print_expr(_pin(expr, at_ms))
    return [(pinned, time_ms) for time_ms in times]


def _nodes(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in children(expr):
        yield from _nodes(child)


def _pin(expr: Expr, at_ms: int) -> Expr:
    match expr:
        case VectorSelector():
            return expr if expr.at is not None else replace(expr, at=at_ms)
        case MatrixSelector():
            return replace(expr, vector=_pin(expr.vector, at_ms))
        case Subquery():
            return expr if expr.at is not None else replace(expr, at=at_ms)
        case Paren() | Unary():
            return replace(expr, expr=_pin(expr.expr, at_ms))
        case Binary():
            return replace(expr, left=_pin(expr.left, at_ms), right=_pin(expr.right, at_ms))
        case Aggregate():
            param = None if expr.param is None else _pin(expr.param, at_ms)
            return replace(expr, expr=_pin(expr.expr, at_ms), param=param)
        case Call():
            return replace(expr, args=tuple(_pin(arg, at_ms) for arg in expr.args))
        case _:
            return expr
