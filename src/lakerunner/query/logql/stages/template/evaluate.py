"""Evaluate a template for whole columns: the same walk over the tree as the interpreter's, with a column per value.

Branches are evaluated for the entries that take them. An entry whose evaluation fails keeps its first error, and its
further values do not matter. What has no column form (loops, templates that invoke others, assignments from within a
branch) is executed once for each distinct tuple of what the template reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Check, Entries, Ints, Mask
from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.template.column_calls import SLICED, VECTORISED, Vectorised, printed_column
from lakerunner.query.logql.stages.template.columns import (
    Column,
    Constant,
    Distinct,
    Numbers,
    Texts,
    column_of,
    concatenated,
    is_clean,
    raw_texts,
    sliced,
    taken,
    truth,
    tuples_of,
)
from lakerunner.query.logql.stages.template.functions import FUNCTIONS, LINE, TIMESTAMP
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
from lakerunner.query.logql.stages.template.functions.times import METHODS
from lakerunner.query.logql.stages.template.go_time import UTC, ZERO, Time
from lakerunner.query.logql.stages.template.go_types import (
    NIL,
    Duration,
    Labels,
    Value,
    to_bytes,
    type_name,
)
from lakerunner.query.logql.stages.template.interpreter import (
    Entry,
    TemplateError,
    execute,
    located,
    no_field,
    parameter_type,
)
from lakerunner.query.logql.stages.template.limits import Meter, check_batch, check_entry
from lakerunner.query.logql.stages.template.nodes import (
    Action,
    AnyNode,
    Block,
    Bool,
    Branch,
    Chain,
    Command,
    Dot,
    Field,
    Identifier,
    Nil,
    Number,
    Operand,
    Pipe,
    String,
    Template,
    Text,
    Variable,
)
from lakerunner.query.logql.stages.template.reads import reads

_LABELS = Labels()
"""Stands for the labels of each entry, where a template uses them as one value."""
_CAN_BE_NIL = (ANY, REFLECTED)
#: Entries of one slice of a slow call.
_SLICE = 1 << 14


@dataclass(frozen=True, slots=True)
class Formatted:
    """What a template gave for each entry, and the error of those that failed (else null)."""

    #: `binary` if some of them are not UTF-8, else `string`.
    texts: pa.Array
    errors: pa.StringArray | None


class _NotColumnar(Exception):
    """The template needs the interpreter."""


class _AllFailed(Exception):
    """Every entry of the frame failed: nothing is left to evaluate."""


class _Failure(GoError):
    """An error that is not one of a call."""


_Call: TypeAlias = Callable[..., Value]
#: What stands for the value of an entry that failed, by the type that a function wants.
_STAND_INS: dict[str, Value] = {STRING: "", INT: 0, FLOAT: 0.0, TIME: ZERO, DURATION: Duration(0), ZONE: UTC}


def evaluate(template: Template, name: str, entries: Entries, check: Check) -> Formatted:
    """The template's text for each entry. `name` is what errors call the template."""
    check()
    try:
        return _Evaluation(template, name, entries, check).run()
    except _NotColumnar:
        return _interpreted(template, name, entries, check)


def label_texts(entries: Entries, name: str) -> Column:
    """A label's values; an entry without it has the empty text."""
    array = entries.label(name)
    if array is None:
        return Constant("")
    if not array.null_count:
        return Texts(array)
    if pa.types.is_dictionary(array.type):
        dictionary = pa.concat_arrays([array.dictionary, pa.array([""], array.dictionary.type)])
        return Texts(pa.DictionaryArray.from_arrays(array.indices.fill_null(len(array.dictionary)), dictionary))
    return Texts(array.fill_null(""))


def _interpreted(template: Template, name: str, entries: Entries, check: Check) -> Formatted:
    wanted = reads(template)
    # With all labels as one value, an empty label and a missing one differ.
    names = entries.names() if wanted.labels is None else sorted(wanted.labels)
    columns: list[Column] = [
        _optional(entries, each) if wanted.labels is None else label_texts(entries, each) for each in names
    ]
    columns.append(Texts(entries.lines) if wanted.line else Constant(""))
    columns.append(Numbers(entries.times_ns, "int") if wanted.time else Constant(0))
    codes, found = tuples_of(columns, len(entries))
    texts: list[str] = []
    errors: list[str | None] = []
    size = 0
    meter = Meter(check)
    for values in found:
        labels = Labels({each: value for each, value in zip(names, values, strict=False) if value is not None})
        try:
            texts.append(execute(template, name, Entry(labels, values[-2], values[-1]), meter))
            errors.append(None)
        except TemplateError as reason:
            texts.append("")
            errors.append(str(reason))
        size += len(texts[-1])
        check_batch(size)
    failed = any(error is not None for error in errors)
    return Formatted(raw_texts(codes, texts), pa.array(errors, pa.string()).take(pa.array(codes)) if failed else None)


def _optional(entries: Entries, name: str) -> Column:
    array = entries.label(name)
    assert array is not None
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values: list[Value] = [*encoded.dictionary.to_pylist(), None]
    codes = encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
    return Distinct(codes.astype(np.int64), values)


@dataclass(eq=False, slots=True)
class _Frame:
    """Some of the entries, and what is known for them."""

    entries: Entries
    #: Their positions in the batch; None: all.
    rows: Ints | None
    size: int
    parent: _Frame | None = None
    #: Their positions in the parent.
    within: Ints | None = None
    columns: dict[str, Column] = field(default_factory=dict)

    def cut(self, rows: Ints) -> _Frame:
        return _Frame(self.entries, rows if self.rows is None else self.rows[rows], len(rows), self, rows)

    def label(self, name: str) -> Column:
        return self._cached("." + name)

    def line(self) -> Column:
        return self._cached(LINE)

    def time(self) -> Column:
        return self._cached(TIMESTAMP)

    def _cached(self, key: str) -> Column:
        found = self.columns.get(key)
        if found is None:
            if self.parent is not None:
                assert self.within is not None
                found = taken(self.parent._cached(key), self.within)
            elif key == LINE:
                found = Texts(self.entries.lines)
            elif key == TIMESTAMP:
                found = Numbers(self.entries.times_ns, "time.Time")
            else:
                found = label_texts(self.entries, key[1:])
            self.columns[key] = found
        return found

    def seen_from(self, inner: _Frame, column: Column) -> Column:
        """A column of this frame for the entries of a frame within it."""
        steps: list[Ints] = []
        while inner is not self:
            assert inner.within is not None and inner.parent is not None
            steps.append(inner.within)
            inner = inner.parent
        for rows in reversed(steps):
            column = taken(column, rows)
        return column


@dataclass(frozen=True, slots=True)
class _Bound:
    """A value, and the frame whose entries it has values for."""

    column: Column
    frame: _Frame


#: "No last argument came through the pipeline."
_MISSING = Constant(object())
_ALL_LABELS = Constant(_LABELS)


class _Evaluation:
    def __init__(self, template: Template, name: str, entries: Entries, check: Check) -> None:
        self._template = template
        self._name = name
        self._check = check
        self._entries = entries
        self._frame = _Frame(entries, None, len(entries))
        self._dot = _Bound(_ALL_LABELS, self._frame)
        self._variables: list[tuple[str, _Bound]] = [("$", self._dot)]
        self._node: AnyNode = template.root
        self._errors: list[str | None] | None = None
        self._failed = np.zeros(len(entries), np.bool_)

    def run(self) -> Formatted:
        texts = self._text_of(self._template.root)
        if self._errors is None:
            return Formatted(texts, None)
        return Formatted(texts, pa.array(self._errors, pa.string()))

    # -- errors ----------------------------------------------------------------------------------------------------

    def _fail(self, reason: str) -> NoReturn:
        """All entries of the frame fail, if they did not before."""
        self._record(None, [self._located(reason)], None)
        raise _AllFailed

    def _located(self, reason: str, node: AnyNode | None = None) -> str:
        return located(self._template, self._name, self._name, node or self._node, reason)

    def _record(self, where: Mask | None, texts: Sequence[str], which: Ints | None) -> None:
        """Errors of entries of the frame; `which` is the text of each entry of the frame."""
        frame = self._frame
        inside = np.arange(frame.size) if where is None else np.flatnonzero(where)
        rows = inside if frame.rows is None else frame.rows[inside]
        fresh = ~self._failed[rows]
        rows, inside = rows[fresh], inside[fresh]
        if not len(rows):
            return
        self._failed[rows] = True
        if self._errors is None:
            self._errors = [None] * len(self._entries)
        chosen = [0] * len(rows) if which is None else which[inside].tolist()
        for row, number in zip(rows.tolist(), chosen, strict=True):
            self._errors[row] = texts[number]

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _text_of(self, block: Block | None) -> pa.Array:
        """The text of a block for each entry of the frame; empty where all fail."""
        declared = len(self._variables)
        try:
            return self._joined([] if block is None else self._block(block))
        except _AllFailed:
            return pa.repeat(pa.scalar("", pa.string()), self._frame.size)
        finally:
            del self._variables[declared:]

    def _block(self, block: Block) -> list[pa.Array | str]:
        """The pieces of text of the block, one after another."""
        pieces: list[pa.Array | str] = []
        for node in block.nodes:
            self._check()
            self._node = node
            if isinstance(node, Text):
                pieces.append(node.text)
            elif isinstance(node, Action):
                column = self._pipe(node.pipe)
                if not node.pipe.variables:
                    pieces.append(self._printed(column))
            elif isinstance(node, Branch) and node.keyword != "range":
                pieces.append(self._branch(node))
            else:
                raise _NotColumnar
        return pieces

    def _printed(self, column: Column) -> pa.Array | str:
        if column is _ALL_LABELS:
            raise _NotColumnar
        return printed_column(column)

    def _joined(self, pieces: list[pa.Array | str]) -> pa.Array:
        """The pieces as one text per entry of the frame."""
        size = self._frame.size
        arrays = [piece for piece in pieces if not isinstance(piece, str)]
        fixed = [to_bytes(piece) for piece in pieces if isinstance(piece, str)]
        check_batch(sum(map(len, fixed)) * size + sum(array.nbytes for array in arrays))
        clean = all(is_clean(piece) if isinstance(piece, str) else pa.types.is_string(piece.type) for piece in pieces)
        kind = pa.string() if clean else pa.binary()
        if not arrays:
            return pa.repeat(pa.scalar(b"".join(fixed), pa.binary()).cast(kind), size)
        if len(pieces) == 1:
            return arrays[0]
        parts = [
            pa.scalar(to_bytes(piece), pa.binary()).cast(kind) if isinstance(piece, str) else piece.cast(kind)
            for piece in pieces
        ]
        joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()).cast(kind))
        if size:
            check_entry(pc.max(pc.binary_length(joined)).as_py())
        return joined

    def _branch(self, node: Branch) -> pa.Array:
        depth = len(self._variables)
        column = self._pipe(node.pipe)
        if column is _ALL_LABELS:
            raise _NotColumnar
        frame, dot = self._frame, self._dot
        chosen = truth(column, frame.size)
        parts: list[pa.Array] = []
        orders: list[Ints] = []
        for taken_here, body in ((chosen, node.body), (~chosen, node.otherwise)):
            rows = np.flatnonzero(taken_here)
            if not len(rows):
                continue
            self._frame = frame if len(rows) == frame.size else frame.cut(rows)
            if node.keyword == "with" and body is node.body:
                self._dot = _Bound(column, frame)
            try:
                parts.append(self._text_of(body))
            finally:
                self._frame, self._dot = frame, dot
            orders.append(rows)
        del self._variables[depth:]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return pa.array([], pa.string())
        if len({part.type for part in parts}) > 1:
            parts = [part.cast(pa.binary()) for part in parts]
        back = np.empty(frame.size, np.int64)
        back[np.concatenate(orders)] = np.arange(frame.size)
        return pa.concat_arrays(parts).take(pa.array(back))

    # -- pipelines -------------------------------------------------------------------------------------------------

    def _pipe(self, pipe: Pipe) -> Column:
        self._node = pipe
        column: Column = _MISSING
        for command in pipe.commands:
            column = _unwrapped(self._command(command, column))
        for variable in pipe.variables:
            if pipe.assigns:
                self._assign(variable.path[0], column)
            else:
                self._variables.append((variable.path[0], _Bound(column, self._frame)))
        return column

    def _assign(self, name: str, column: Column) -> None:
        for at in range(len(self._variables) - 1, -1, -1):
            known, bound = self._variables[at]
            if known == name:
                if bound.frame is not self._frame:
                    raise _NotColumnar
                self._variables[at] = (name, _Bound(column, self._frame))
                return

    def _variable(self, name: str) -> Column:
        bound = next(bound for known, bound in reversed(self._variables) if known == name)
        return self._seen(bound)

    def _seen(self, bound: _Bound) -> Column:
        return bound.column if bound.column is _ALL_LABELS else bound.frame.seen_from(self._frame, bound.column)

    def _command(self, command: Command, final: Column) -> Column:
        first = command.args[0]
        if isinstance(first, Field):
            self._node = first
            return self._chain(self._seen(self._dot), first, first.path, command.args, final)
        if isinstance(first, Chain):
            return self._chain_node(first, command.args, final)
        if isinstance(first, Identifier):
            self._node = first
            return self._call(FUNCTIONS[first.name], command, command.args, final)
        if isinstance(first, Pipe):
            self._no_arguments(command.args, final)
            return self._pipe(first)
        if isinstance(first, Variable):
            return self._variable_node(first, command.args, final)
        self._node = first
        self._no_arguments(command.args, final)
        if isinstance(first, Nil):
            self._fail("nil is not a command")
        return self._literal(first)

    def _no_arguments(self, args: tuple[Operand, ...], final: Column) -> None:
        if len(args) > 1 or final is not _MISSING:
            self._fail(f"can't give argument to non-function {args[0]}")

    def _literal(self, node: Operand) -> Column:
        if isinstance(node, Dot):
            return self._seen(self._dot)
        if isinstance(node, Bool | String):
            return Constant(node.value)
        assert isinstance(node, Number)
        self._node = node
        if node.as_complex is not None:
            return Constant(node.as_complex)
        if node.is_float:
            return Constant(node.as_float)
        if node.as_int is None:
            self._fail(f"{node} overflows int")
        return Constant(node.as_int)

    def _chain_node(self, chain: Chain, args: tuple[Operand, ...], final: Column) -> Column:
        self._node = chain
        if isinstance(chain.node, Nil):
            self._fail(f"indirection through explicit nil in {chain}")
        return self._chain(self._argument(None, chain.node), chain, chain.path, args, final)

    def _variable_node(self, variable: Variable, args: tuple[Operand, ...], final: Column) -> Column:
        self._node = variable
        column = self._variable(variable.path[0])
        if len(variable.path) == 1:
            self._no_arguments(args, final)
            return column
        return self._chain(column, variable, variable.path[1:], args, final)

    def _chain(
        self, receiver: Column, node: Operand, path: tuple[str, ...], args: tuple[Operand, ...], final: Column
    ) -> Column:
        element = False
        for name in path[:-1]:
            inner = self._field(receiver, name, node, (), _MISSING, element)
            receiver, element = inner, receiver is not _ALL_LABELS
        return self._field(receiver, path[-1], node, args, final, element)

    def _field(
        self,
        receiver: Column,
        name: str,
        node: Operand,
        args: tuple[Operand, ...],
        final: Column,
        element: bool,
    ) -> Column:
        if receiver is _ALL_LABELS:
            if len(args) > 1 or final is not _MISSING:
                self._fail(f"{name} is not a method but has arguments")
            return self._frame.label(name)
        if isinstance(receiver, Numbers) and receiver.go_type == "time.Time" and name in METHODS[Time]:
            return self._call(METHODS[Time][name], node, args, final, receiver)
        if len(args) > 1 or final is not _MISSING:
            raise _NotColumnar
        return self._mapped([receiver], lambda value: _field_of(value, name, element), self._node)

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call(
        self,
        function: Function,
        node: AnyNode,
        args: tuple[Operand, ...],
        final: Column,
        receiver: Column | None = None,
    ) -> Column:
        given = args[1:]
        wanted, count = len(function.parameters), len(given) + (final is not _MISSING)
        if function.variadic:
            if count < wanted - 1:
                self._fail(f"wrong number of args for {function.name}: want at least {wanted - 1} got {len(given)}")
        elif count != wanted:
            self._fail(f"wrong number of args for {function.name}: want {wanted} got {count}")
        if function.refused:
            self._fail(function.refused)
        if function.name in ("and", "or"):
            return self._short_circuit(function.name, given, final)
        columns = [self._argument(parameter_type(function, at), arg) for at, arg in enumerate(given)]
        if final is not _MISSING:
            columns.append(self._validated(final, parameter_type(function, len(given))))
        if function.name == LINE:
            return self._frame.line()
        if function.name == TIMESTAMP:
            return self._frame.time()
        if function.name == "call" or any(column is _ALL_LABELS for column in columns):
            return self._with_labels(function, columns)
        if receiver is not None:
            columns.insert(0, receiver)
        if not function.pure:
            return self._impure(function)
        vectorised = VECTORISED.get(function.name) if receiver is None else VECTORISED.get(f".{function.name}")
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

    def _impure(self, function: Function) -> Column:
        """`now`: one moment for all entries of the batch."""
        return Constant(function.call())

    def _with_labels(self, function: Function, columns: list[Column]) -> Column:
        """A call that takes all labels as one value; only `index . "name"` has a column form."""
        if function.name == "index" and len(columns) == 2 and columns[0] is _ALL_LABELS:
            name = columns[1].value if isinstance(columns[1], Constant) else None
            if isinstance(name, str):
                return self._frame.label(name)
        raise _NotColumnar

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
            raise _AllFailed
        stand_in = next(value for number, value in enumerate(values) if number not in bad)
        for number in bad:
            values[number] = stand_in

    def _short_circuit(self, name: str, args: tuple[Operand, ...], final: Column) -> Column:
        """`and` and `or`: later arguments are evaluated only for entries that earlier ones did not decide."""
        frame = self._frame
        codes = np.zeros(frame.size, np.int64)
        values: list[Value] = []
        pending = np.arange(frame.size)
        for at, arg in enumerate((*args, None) if final is not _MISSING else args):
            last = at == len(args) - (final is _MISSING)
            self._frame = frame if len(pending) == frame.size else frame.cut(pending)
            try:
                column = taken(final, pending) if arg is None else self._argument(REFLECTED, arg)
            except _AllFailed:
                # For the entries that got here. The others have their values.
                column, last = Constant(""), True
            finally:
                self._frame = frame
            if column is _ALL_LABELS:
                raise _NotColumnar
            if last and len(pending) == frame.size:
                return column
            decided = np.ones(len(pending), np.bool_) if last else truth(column, len(pending)) == (name == "or")
            here, found = tuples_of([column], len(pending))
            codes[pending[decided]] = here[decided] + len(values)
            values += [value for (value,) in found]
            pending = pending[~decided]
            if not len(pending):
                break
        return column_of(codes, values)

    def _argument(self, wanted: str | None, node: Operand) -> Column:
        self._node = node
        if isinstance(node, Dot):
            return self._validated(self._seen(self._dot), wanted)
        if isinstance(node, Nil):
            if wanted in _CAN_BE_NIL:
                return Constant(None)
            self._fail(f"cannot assign nil to {wanted}")
        if isinstance(node, Field):
            return self._validated(self._chain(self._seen(self._dot), node, node.path, (node,), _MISSING), wanted)
        if isinstance(node, Variable):
            return self._validated(self._variable_node(node, (), _MISSING), wanted)
        if isinstance(node, Pipe):
            return self._validated(self._pipe(node), wanted)
        if isinstance(node, Identifier):
            return self._validated(self._call(FUNCTIONS[node.name], node, (), _MISSING), wanted)
        if isinstance(node, Chain):
            return self._validated(self._chain_node(node, (), _MISSING), wanted)
        return self._typed_literal(wanted, node)

    def _typed_literal(self, wanted: str | None, node: Operand) -> Column:
        if wanted in _CAN_BE_NIL:
            return self._literal(node)
        number = node if isinstance(node, Number) else None
        if wanted == STRING:
            if isinstance(node, String):
                return Constant(node.value)
            self._fail(f"expected string; found {node}")
        if wanted in (INT, DURATION):
            if number is not None and number.as_int is not None:
                return Constant(number.as_int if wanted == INT else Duration(number.as_int))
            self._fail(f"expected integer; found {node}")
        if wanted == FLOAT:
            if number is not None and number.as_float is not None:
                return Constant(number.as_float)
            self._fail(f"expected float; found {node}")
        self._fail(f"can't handle {node} for arg of type {wanted}")

    def _validated(self, column: Column, wanted: str | None) -> Column:
        """The column, whose values have the wanted type. Entries with another one fail."""
        if wanted is None or wanted in _CAN_BE_NIL:
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
            raise _AllFailed
        values = [
            _STAND_INS[wanted] if found != wanted else value for value, found in zip(column.values, types, strict=True)
        ]
        return column_of(column.codes, values)


def _vectorises(columns: Sequence[Column]) -> bool:
    """Whether the columns vary, and Arrow can hold all their texts."""
    constants = [column.value for column in columns if isinstance(column, Constant)]
    return len(constants) < len(columns) and all(is_clean(each) for each in constants if isinstance(each, str))


def _field_of(value: Value, name: str, element: bool) -> Value:
    """A field of one value. Raises what the error says."""
    if value is None:
        return None
    if value is NIL:
        raise _Failure(f"nil pointer evaluating interface {{}}.{name}")
    method = METHODS.get(type(value), {}).get(name)
    if method is not None:
        if method.refused or (method.parameters and not method.variadic):
            raise _NotColumnar
        return method.call(value)
    if isinstance(value, dict):
        return value.get(name, NIL)
    raise _Failure(no_field(name, value, element))


def _type_of(value: Value) -> str:
    """The type of a value; empty if there is none."""
    return "" if value is None else type_name(value)


def _unwrapped(column: Column) -> Column:
    """Commands of a pipeline see no interface that holds nothing, but no value."""
    if isinstance(column, Constant):
        return Constant(None) if column.value is NIL else column
    if isinstance(column, Distinct) and any(value is NIL for value in column.values):
        return Distinct(column.codes, [None if value is NIL else value for value in column.values])
    return column
