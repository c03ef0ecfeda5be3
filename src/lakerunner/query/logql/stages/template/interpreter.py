"""Execute a template for one entry, exactly as Go does: the reference for whole columns, and their last resort."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from lakerunner.model.errors import LimitHit
from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.template.functions import FUNCTIONS, LINE, TIMESTAMP
from lakerunner.query.logql.stages.template.functions.signature import (
    ANY,
    DURATION,
    FLOAT,
    INT,
    REFLECTED,
    STRING,
    Function,
)
from lakerunner.query.logql.stages.template.functions.times import METHODS
from lakerunner.query.logql.stages.template.go_fmt import printed
from lakerunner.query.logql.stages.template.go_time import Time
from lakerunner.query.logql.stages.template.go_types import (
    NIL,
    Duration,
    Labels,
    Struct,
    Value,
    is_true,
    joined,
    runes,
    to_bytes,
    type_name,
)
from lakerunner.query.logql.stages.template.limits import MAX_INVOCATIONS, Meter, check_entry, check_steps
from lakerunner.query.logql.stages.template.nodes import (
    Action,
    AnyNode,
    Block,
    Bool,
    Branch,
    Break,
    Chain,
    Command,
    Continue,
    Dot,
    Field,
    Identifier,
    Invocation,
    Nil,
    Node,
    Number,
    Operand,
    Pipe,
    String,
    Template,
    Text,
    Variable,
)
from lakerunner.query.syntax.strings import quote

#: "No last argument came through the pipeline", which is not the same as none that has a value.
_MISSING = object()
_CAN_BE_NIL = (ANY, REFLECTED)


class TemplateError(Exception):
    """Execution failed. The text is the one that Go gives."""


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Entry:
    """What a template can read."""

    labels: Labels
    line: str = ""
    time_ns: int = 0


def execute(template: Template, name: str, entry: Entry, meter: Meter | None = None) -> str:
    """The text that the template gives; a TemplateError where Go's execution stops."""
    return _Run(template, name, entry, FUNCTIONS, meter or Meter(bool)).text(entry.labels)


def expand(template: Template, name: str, dot: Value, functions: Mapping[str, Function], meter: Meter) -> str:
    """The text that a template gives for any value, with functions of its own: parse it with their names."""
    return _Run(template, name, Entry(Labels()), functions, meter).text(dot)


def located(template: Template, name: str, inner: str, node: AnyNode, reason: str) -> str:
    """An error with the place where it happened; `inner` is the template that was being executed."""
    before = template.text[: node.at]
    line = before[before.rfind("\n") + 1 :]
    place = f"{name}:{1 + before.count(chr(10))}:{len(to_bytes(line))}"
    return runes(f"template: {place}: executing {quote(inner)} at <{node}>: {reason}")


class _Run:
    def __init__(
        self, template: Template, name: str, entry: Entry, functions: Mapping[str, Function], meter: Meter
    ) -> None:
        self.out: list[str] = []
        self._functions = functions
        self._template = template
        self._name = name
        #: The template that is being executed.
        self._inner = name
        self._entry = entry
        self._node: AnyNode = template.root
        self._variables: list[tuple[str, Value]] = []
        self._invocations = 0
        self._meter = meter
        self._steps = 0
        self._size = 0

    def text(self, dot: Value) -> str:
        self._variables = [("$", dot)]
        try:
            self.block(dot, self._template.root)
        except RecursionError:
            raise LimitHit("cannot format an entry: its templates invoke each other too deep") from None
        return joined(*self.out)

    def _fail(self, reason: str) -> NoReturn:
        raise TemplateError(located(self._template, self._name, self._inner, self._node, reason))

    # -- nodes -----------------------------------------------------------------------------------------------------

    def block(self, dot: Value, block: Block) -> None:
        for node in block.nodes:
            self._step()
            self._walk(dot, node)

    def _step(self) -> None:
        self._steps += 1
        check_steps(self._steps)
        self._meter.spend(1)

    def _walk(self, dot: Value, node: Node) -> None:
        self._node = node
        if isinstance(node, Text):
            self._write(node.text)
        elif isinstance(node, Action):
            value = self.pipe(dot, node.pipe)
            if not node.pipe.variables:
                self._node = node
                self._write("<no value>" if value is None else printed(value))
        elif isinstance(node, Branch):
            depth = len(self._variables)
            try:
                if node.keyword == "range":
                    self._range(dot, node)
                else:
                    self._if_or_with(dot, node)
            finally:
                del self._variables[depth:]
        elif isinstance(node, Invocation):
            self._invoke(dot, node)
        elif isinstance(node, Break):
            raise _Break
        else:
            assert isinstance(node, Continue)
            raise _Continue

    def _write(self, text: str) -> None:
        self._size += len(text)
        check_entry(self._size)
        self.out.append(text)

    def _if_or_with(self, dot: Value, node: Branch) -> None:
        value = self.pipe(dot, node.pipe)
        if is_true(value):
            self.block(value if node.keyword == "with" else dot, node.body)
        elif node.otherwise is not None:
            self.block(dot, node.otherwise)

    def _range(self, dot: Value, node: Branch) -> None:
        value = self.pipe(dot, node.pipe)
        items = self._items(value, node)
        depth = len(self._variables)
        ran = False
        for index, element in items:
            ran = True
            self._step()
            self._set_range_variables(node.pipe, index, element)
            try:
                self.block(element, node.body)
            except _Continue:
                pass
            except _Break:
                return
            finally:
                del self._variables[depth:]
        if not ran and node.otherwise is not None:
            self.block(dot, node.otherwise)

    def _items(self, value: Value, node: Branch) -> Iterable[tuple[Value, Value]]:
        if value is None or value is NIL:
            return ()
        if isinstance(value, dict):
            return [(key, value[key]) for key in sorted(value, key=to_bytes)]
        if isinstance(value, list):
            return list(enumerate(value))
        if isinstance(value, int) and not isinstance(value, bool):
            if len(node.pipe.variables) > 1:
                self._fail(f"can't use {printed(value)} to iterate over more than one variable")
            return ((None, type(value)(number)) for number in range(value))
        self._fail(f"range can't iterate over {printed(value)}")

    def _set_range_variables(self, pipe: Pipe, index: Value, element: Value) -> None:
        names = [variable.path[0] for variable in pipe.variables]
        values = [index, element][2 - len(names) :]
        for number, (name, value) in enumerate(zip(names, values, strict=True)):
            if pipe.assigns:
                self._assign(name, value)
            else:
                self._variables[len(self._variables) - len(names) + number] = (name, value)

    def _invoke(self, dot: Value, node: Invocation) -> None:
        body = self._template.body_of(node.name)
        if body is None:
            self._fail(f"template {quote(node.name)} not defined")
        if self._invocations == MAX_INVOCATIONS:
            raise LimitHit(
                f"cannot format an entry: its templates invoke each other more than {MAX_INVOCATIONS} deep (fixed)"
            )
        value = None if node.pipe is None else self.pipe(dot, node.pipe)
        saved = self._variables, self._inner
        self._variables, self._inner = [("$", value)], node.name
        self._invocations += 1
        self.block(value, body)
        self._invocations -= 1
        self._variables, self._inner = saved

    # -- pipelines -------------------------------------------------------------------------------------------------

    def pipe(self, dot: Value, pipe: Pipe) -> Value:
        self._node = pipe
        value: Value = _MISSING
        for command in pipe.commands:
            value = self._command(dot, command, value)
            if value is NIL:
                value = None
        for variable in pipe.variables:
            if pipe.assigns:
                self._assign(variable.path[0], value)
            else:
                self._variables.append((variable.path[0], value))
        return value

    def _assign(self, name: str, value: Value) -> None:
        for at in range(len(self._variables) - 1, -1, -1):
            if self._variables[at][0] == name:
                self._variables[at] = (name, value)
                return
        self._fail(f"undefined variable: {name}")

    def _variable(self, name: str) -> Value:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        self._fail(f"undefined variable: {name}")

    def _command(self, dot: Value, command: Command, final: Value) -> Value:
        first = command.args[0]
        if isinstance(first, Field):
            self._node = first
            return self._chain(dot, dot, first, first.path, command.args, final)
        if isinstance(first, Chain):
            return self._chain_node(dot, first, command.args, final)
        if isinstance(first, Identifier):
            return self._function(dot, first, command, command.args, final)
        if isinstance(first, Pipe):
            self._no_arguments(command.args, final)
            return self.pipe(dot, first)
        if isinstance(first, Variable):
            return self._variable_node(dot, first, command.args, final)
        self._node = first
        self._no_arguments(command.args, final)
        if isinstance(first, Nil):
            self._fail("nil is not a command")
        return self._literal(dot, first)

    def _no_arguments(self, args: tuple[Operand, ...], final: Value) -> None:
        if len(args) > 1 or final is not _MISSING:
            self._fail(f"can't give argument to non-function {args[0]}")

    def _literal(self, dot: Value, node: Operand) -> Value:
        """A value without a context that asks for a type."""
        if isinstance(node, Dot):
            return dot
        if isinstance(node, Bool | String):
            return node.value
        assert isinstance(node, Number)
        self._node = node
        if node.as_complex is not None:
            return node.as_complex
        if node.is_float:
            return node.as_float
        if node.as_int is None:
            self._fail(f"{node} overflows int")
        return node.as_int

    def _chain_node(self, dot: Value, chain: Chain, args: tuple[Operand, ...], final: Value) -> Value:
        self._node = chain
        if isinstance(chain.node, Nil):
            self._fail(f"indirection through explicit nil in {chain}")
        receiver = self._argument(dot, None, chain.node)
        return self._chain(dot, receiver, chain, chain.path, args, final)

    def _variable_node(self, dot: Value, variable: Variable, args: tuple[Operand, ...], final: Value) -> Value:
        self._node = variable
        value = self._variable(variable.path[0])
        if len(variable.path) == 1:
            self._no_arguments(args, final)
            return value
        return self._chain(dot, value, variable, variable.path[1:], args, final)

    def _chain(
        self,
        dot: Value,
        receiver: Value,
        node: Operand,
        path: tuple[str, ...],
        args: tuple[Operand, ...],
        final: Value,
    ) -> Value:
        element = False
        for name in path[:-1]:
            inner = self._field(dot, name, node, (), _MISSING, receiver, element)
            receiver, element = inner, type(receiver) is dict
        return self._field(dot, path[-1], node, args, final, receiver, element)

    def _field(
        self,
        dot: Value,
        name: str,
        node: Operand,
        args: tuple[Operand, ...],
        final: Value,
        receiver: Value,
        element: bool,
    ) -> Value:
        """A field or method of the receiver, which is an `element` of a map of any values or something else."""
        if receiver is None:
            return None
        if receiver is NIL:
            self._fail(f"nil pointer evaluating interface {{}}.{name}")
        method = METHODS.get(type(receiver), {}).get(name)
        if method is not None:
            return self._call(dot, method, node, args, final, receiver=receiver)
        if isinstance(receiver, dict):
            if len(args) > 1 or final is not _MISSING:
                self._fail(f"{name} is not a method but has arguments")
            return receiver.get(name, "" if isinstance(receiver, Labels) else NIL)
        if isinstance(receiver, Struct) and name in receiver.fields:
            return receiver.fields[name]
        self._fail(no_field(name, receiver, element))

    # -- calls -----------------------------------------------------------------------------------------------------

    def _function(
        self, dot: Value, node: Identifier, command: AnyNode, args: tuple[Operand, ...], final: Value
    ) -> Value:
        self._node = node
        return self._call(dot, self._functions[node.name], command, args, final)

    def _call(
        self,
        dot: Value,
        function: Function,
        node: AnyNode,
        args: tuple[Operand, ...],
        final: Value,
        receiver: Value = _MISSING,
    ) -> Value:
        given = args[1:]
        self._check_count(function, len(given), final is not _MISSING)
        if function.name in ("and", "or"):
            return self._short_circuit(dot, function.name, given, final)
        if function.refused:
            self._fail(function.refused)
        values = [self._argument(dot, parameter_type(function, at), arg) for at, arg in enumerate(given)]
        if final is not _MISSING:
            values.append(self._validated(final, parameter_type(function, len(given))))
        if function.name == LINE:
            return self._entry.line
        if function.name == TIMESTAMP:
            return Time.of_ns(self._entry.time_ns)
        if function.name == "call":
            values.insert(0, str(given[0]) if given else _shown(final))
        elif receiver is not _MISSING:
            values.insert(0, receiver)
        self._meter.spend_on(values)
        try:
            return function.call(*values)
        except GoError as reason:
            self._node = node
            self._fail(f"error calling {function.name}: {reason}")

    def _check_count(self, function: Function, given: int, has_final: bool) -> None:
        wanted, count = len(function.parameters), given + has_final
        if function.variadic:
            if count < wanted - 1:
                self._fail(f"wrong number of args for {function.name}: want at least {wanted - 1} got {given}")
        elif count != wanted:
            self._fail(f"wrong number of args for {function.name}: want {wanted} got {count}")

    def _short_circuit(self, dot: Value, name: str, args: tuple[Operand, ...], final: Value) -> Value:
        value: Value = None
        for arg in args:
            value = self._argument(dot, REFLECTED, arg)
            if is_true(value) == (name == "or"):
                return value
        return value if final is _MISSING else final

    def _argument(self, dot: Value, wanted: str | None, node: Operand) -> Value:
        self._node = node
        if isinstance(node, Dot):
            return self._validated(dot, wanted)
        if isinstance(node, Nil):
            if wanted in _CAN_BE_NIL:
                return None
            self._fail(f"cannot assign nil to {wanted}")
        if isinstance(node, Field):
            return self._validated(self._chain(dot, dot, node, node.path, (node,), _MISSING), wanted)
        if isinstance(node, Variable):
            return self._validated(self._variable_node(dot, node, (), _MISSING), wanted)
        if isinstance(node, Pipe):
            return self._validated(self.pipe(dot, node), wanted)
        if isinstance(node, Identifier):
            return self._validated(self._function(dot, node, node, (), _MISSING), wanted)
        if isinstance(node, Chain):
            return self._validated(self._chain_node(dot, node, (), _MISSING), wanted)
        return self._typed_literal(dot, wanted, node)

    def _typed_literal(self, dot: Value, wanted: str | None, node: Operand) -> Value:
        if wanted in (ANY, REFLECTED):
            return self._literal(dot, node)
        number = node if isinstance(node, Number) else None
        if wanted == STRING:
            if isinstance(node, String):
                return node.value
            self._fail(f"expected string; found {node}")
        if wanted in (INT, DURATION):
            if number is not None and number.as_int is not None:
                return number.as_int if wanted == INT else Duration(number.as_int)
            self._fail(f"expected integer; found {node}")
        if wanted == FLOAT:
            if number is not None and number.as_float is not None:
                return number.as_float
            self._fail(f"expected float; found {node}")
        self._fail(f"can't handle {node} for arg of type {wanted}")

    def _validated(self, value: Value, wanted: str | None) -> Value:
        if wanted is None or wanted in _CAN_BE_NIL:
            return value
        if value is None:
            self._fail(f"invalid value; expected {wanted}")
        found = type_name(value)
        if found != wanted:
            self._fail(f"wrong type for value; expected {wanted}; got {found}")
        return value


def no_field(name: str, receiver: Value, element: bool) -> str:
    """Why a value has no such field. Of an element, Go knows only the type that all elements have."""
    return f"can't evaluate field {name} in type {'interface {}' if element else type_name(receiver)}"


def parameter_type(function: Function, at: int) -> str:
    """The type of an argument. Those beyond the last parameter of a variadic function have its type."""
    return function.parameters[min(at, len(function.parameters) - 1)]


def _shown(value: Value) -> str:
    """A value as the name of a function."""
    return value if isinstance(value, str) else f"<{type_name(value)} Value>"
