"""Call functions for the columns of a frame, and record which entries failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

import numpy as np
import pyarrow as pa

from lakerunner.query.logql.entries import Check, Entries, Ints, Mask
from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.template.column_calls import SLICED, VECTORISED
from lakerunner.query.logql.stages.template.column_calls.signature import Vectorised
from lakerunner.query.logql.stages.template.columns import (
    Column,
    Constant,
    Distinct,
    Numbers,
    Texts,
    column_of,
    concatenated,
    is_clean,
    sliced,
    tuples_of,
)
from lakerunner.query.logql.stages.template.frames import Frame
from lakerunner.query.logql.stages.template.functions.signature import (
    ANY,
    DURATION,
    FLOAT,
    INT,
    REFLECTED,
    STRING,
    TIME,
    ZONE,
    Function,
)
from lakerunner.query.logql.stages.template.go_time import UTC, ZERO
from lakerunner.query.logql.stages.template.go_types import Duration, Value, type_name
from lakerunner.query.logql.stages.template.interpreter import located
from lakerunner.query.logql.stages.template.limits import Meter, check_batch, check_entry
from lakerunner.query.logql.stages.template.nodes import AnyNode, Template

_Call: TypeAlias = Callable[..., Value]
CAN_BE_NIL = (ANY, REFLECTED)
#: What stands for the value of an entry that failed, by the type that a function wants.
_STAND_INS: dict[str, Value] = {STRING: "", INT: 0, FLOAT: 0.0, TIME: ZERO, DURATION: Duration(0), ZONE: UTC}
#: Entries of one slice of a slow call.
_SLICE = 1 << 14


class AllFailed(Exception):
    """Every entry of the frame failed: nothing is left to evaluate."""


class Caller:
    """The base of an evaluation: its frame, the node that errors point at, and the errors so far."""

    def __init__(self, template: Template, name: str, entries: Entries, check: Check) -> None:
        self._template = template
        self._name = name
        self._check = check
        self._entries = entries
        self._frame = Frame(entries, None, len(entries))
        self._node: AnyNode = template.root
        self._error_texts: list[str] = []
        #: The number of each entry's error text; -1: it did not fail.
        self._failures = np.full(len(entries), -1, np.int64)

    def _fail(self, reason: str) -> NoReturn:
        """All entries of the frame fail, if they did not before."""
        self._record(None, [self._located(reason)], None)
        raise AllFailed

    def _located(self, reason: str, node: AnyNode | None = None) -> str:
        return located(self._template, self._name, self._name, node or self._node, reason)

    def _record(self, where: Mask | None, texts: Sequence[str], which: Ints | None) -> None:
        """Errors of entries of the frame, all those without `where`; `which` is the text of each entry."""
        frame = self._frame
        inside = np.arange(frame.size) if where is None else np.flatnonzero(where)
        rows = inside if frame.rows is None else frame.rows[inside]
        fresh = self._failures[rows] < 0
        self._failures[rows[fresh]] = len(self._error_texts) + (0 if which is None else which[inside[fresh]])
        self._error_texts += texts

    def _errors(self) -> pa.StringArray | None:
        """The error of each entry that failed."""
        if not (self._failures >= 0).any():
            return None
        return pa.array(self._error_texts, pa.string()).take(pa.array(self._failures, mask=self._failures < 0))

    def _called(self, function: Function, columns: list[Column], node: AnyNode, *, is_method: bool) -> Column:
        """The function's value for each entry of the frame."""
        vectorised = VECTORISED.get(f".{function.name}" if is_method else function.name)
        if vectorised is not None and _vectorises(columns):
            found = self._sliced(vectorised, columns) if function.name in SLICED else vectorised(*columns)
            if found is not None:
                return found
        return self._mapped(columns, function.call, node, f"error calling {function.name}: ")

    def _sliced(self, vectorised: Vectorised, columns: list[Column]) -> Column | None:
        """A vectorised call in slices, with a check before each."""
        made: list[Column] = []
        for start in range(0, self._frame.size, _SLICE):
            self._check()
            found = vectorised(*(sliced(column, start, _SLICE) for column in columns))
            if found is None:
                return None
            made.append(found)
        return concatenated(made)

    def _mapped(self, columns: Sequence[Column], call: _Call, node: AnyNode, prefix: str = "") -> Column:
        """The function's value, from one call for each distinct tuple of arguments. Errors point at the node."""
        codes, found = tuples_of(columns, self._frame.size)
        meter = Meter(self._check)
        values: list[Value] = []
        errors: list[str] = []
        bad: dict[int, int] = {}
        size = 0
        for number, arguments in enumerate(found):
            meter.spend_on(arguments)
            try:
                value = call(*arguments)
            except GoError as reason:
                value = None
                bad[number] = len(errors)
                errors.append(self._located(f"{prefix}{reason}", node))
            if isinstance(value, str):
                size += len(value)
                check_entry(len(value))
                check_batch(size)
            values.append(value)
        if bad:
            self._failed_calls(codes, values, bad, errors)
        return column_of(codes, values) if values else Constant("")

    def _failed_calls(self, codes: Ints, values: list[Value], bad: dict[int, int], errors: list[str]) -> None:
        """Record the errors, and give the failed calls a value of the others' type to go on with."""
        which = np.full(len(values), -1, np.int64)
        which[list(bad)] = list(bad.values())
        numbers = which[codes]
        self._record(numbers >= 0, errors, numbers)
        if len(bad) == len(values):
            raise AllFailed
        stand_in = next(value for number, value in enumerate(values) if number not in bad)
        for number in bad:
            values[number] = stand_in

    def _validated(self, column: Column, wanted: str | None) -> Column:
        """The column, whose values have the wanted type. Entries with another one fail."""
        if wanted is None or wanted in CAN_BE_NIL:
            return column
        if isinstance(column, Distinct):
            return self._validated_values(column, wanted)
        if isinstance(column, Texts):
            found = STRING
        else:
            found = column.go_type if isinstance(column, Numbers) else _type_of(column.value)
        if not found:
            self._fail(f"invalid value; expected {wanted}")
        if found != wanted:
            self._fail(f"wrong type for value; expected {wanted}; got {found}")
        return column

    def _validated_values(self, column: Distinct, wanted: str) -> Column:
        types = [_type_of(value) for value in column.values]
        if set(types) == {wanted}:
            return column
        errors = [
            self._located(
                f"wrong type for value; expected {wanted}; got {found}"
                if found
                else f"invalid value; expected {wanted}"
            )
            for found in types
        ]
        bad = np.array([found != wanted for found in types], np.bool_)
        failed = bad[column.codes]
        self._record(failed, errors, column.codes)
        if failed.all():
            raise AllFailed
        values = [
            _STAND_INS[wanted] if found != wanted else value for value, found in zip(column.values, types, strict=True)
        ]
        return column_of(column.codes, values)


def _vectorises(columns: Sequence[Column]) -> bool:
    """Whether the columns vary, and Arrow can hold all their texts."""
    constants = [column.value for column in columns if isinstance(column, Constant)]
    return len(constants) < len(columns) and all(is_clean(each) for each in constants if isinstance(each, str))


def _type_of(value: Value) -> str:
    """The type of a value; empty if there is none."""
    return "" if value is None else type_name(value)
