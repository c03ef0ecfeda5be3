"""Evaluate a template for whole columns: the same walk over the tree as the interpreter's, with a column per value.

Branches are evaluated for the entries that take them. An entry whose evaluation fails keeps its first error, and its
further values do not matter. What has no column form (loops, templates that invoke others, assignments from within a
branch) is executed once for each distinct tuple of what the template reads.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Check, Entries, Ints
from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.template.caller import CAN_BE_NIL, AllFailed, Caller
from lakerunner.query.logql.stages.template.column_calls.printing import printed_column
from lakerunner.query.logql.stages.template.columns import (
    Column,
    Constant,
    Distinct,
    Formatted,
    Numbers,
    column_of,
    is_clean,
    taken,
    truth,
    tuples_of,
)
from lakerunner.query.logql.stages.template.frames import Bound
from lakerunner.query.logql.stages.template.functions import FUNCTIONS, LINE, TIMESTAMP
from lakerunner.query.logql.stages.template.functions.signature import (
    DURATION,
    FLOAT,
    INT,
    REFLECTED,
    STRING,
    Function,
)
from lakerunner.query.logql.stages.template.functions.times import METHODS
from lakerunner.query.logql.stages.template.go_time import Time
from lakerunner.query.logql.stages.template.go_types import (
    NIL,
    Duration,
    Labels,
    Value,
    to_bytes,
)
from lakerunner.query.logql.stages.template.interpreter import (
    no_field,
    parameter_type,
)
from lakerunner.query.logql.stages.template.limits import check_batch, check_entry
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
from lakerunner.query.logql.stages.template.per_tuple import interpreted

#: Stands for the labels of each entry, where a template uses them as one value.
_ALL_LABELS = Constant(Labels())
#: "No last argument came through the pipeline."
_MISSING = Constant(object())


class _NotColumnar(Exception):
    """The template needs the interpreter."""


class _Failure(GoError):
    """An error that is not one of a call."""


def evaluate(template: Template, name: str, entries: Entries, check: Check) -> Formatted:
    """The template's text for each entry. `name` is what errors call the template."""
    check()
    try:
        return _Evaluation(template, name, entries, check).run()
    except _NotColumnar:
        return interpreted(template, name, entries, check)


class _Evaluation(Caller):
    def __init__(self, template: Template, name: str, entries: Entries, check: Check) -> None:
        super().__init__(template, name, entries, check)
        self._dot = Bound(_ALL_LABELS, self._frame)
        self._variables: list[tuple[str, Bound]] = [("$", self._dot)]

    def run(self) -> Formatted:
        texts = self._text_of(self._template.root)
        return Formatted(texts, self._errors())

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _text_of(self, block: Block | None) -> pa.Array:
        """The text of a block for each entry of the frame; empty where all fail."""
        declared = len(self._variables)
        try:
            return self._joined([] if block is None else self._block(block))
        except AllFailed:
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
                self._dot = Bound(column, frame)
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
                self._variables.append((variable.path[0], Bound(column, self._frame)))
        return column

    def _assign(self, name: str, column: Column) -> None:
        for at in range(len(self._variables) - 1, -1, -1):
            known, bound = self._variables[at]
            if known == name:
                if bound.frame is not self._frame:
                    raise _NotColumnar
                self._variables[at] = (name, Bound(column, self._frame))
                return
        # An error for every row.
        raise _NotColumnar

    def _variable(self, name: str) -> Column:
        bound = next(bound for known, bound in reversed(self._variables) if known == name)
        return self._seen(bound)

    def _seen(self, bound: Bound) -> Column:
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
            # `now` is one moment for all entries of the batch.
            return Constant(function.call())
        return self._called(function, columns, node, is_method=receiver is not None)

    def _with_labels(self, function: Function, columns: list[Column]) -> Column:
        """A call that takes all labels as one value; only `index . "name"` has a column form."""
        if function.name == "index" and len(columns) == 2 and columns[0] is _ALL_LABELS:
            name = columns[1].value if isinstance(columns[1], Constant) else None
            if isinstance(name, str):
                return self._frame.label(name)
        raise _NotColumnar

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
            except AllFailed:
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
            if wanted in CAN_BE_NIL:
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
        if wanted in CAN_BE_NIL:
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


def _unwrapped(column: Column) -> Column:
    """Commands of a pipeline see no interface that holds nothing, but no value."""
    if isinstance(column, Constant):
        return Constant(None) if column.value is NIL else column
    if isinstance(column, Distinct) and any(value is NIL for value in column.values):
        return Distinct(column.codes, [None if value is NIL else value for value in column.values])
    return column
