"""The syntax tree of a template. Every node prints itself as Go does, because execution errors quote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    at: int = 0

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Identifier:
    """The name of a function."""

    name: str
    at: int = 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Variable:
    """`$x`, or `$x.a.b`."""

    path: tuple[str, ...]
    at: int = 0

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Dot:
    at: int = 0

    def __str__(self) -> str:
        return "."


@dataclass(frozen=True, slots=True)
class Nil:
    at: int = 0

    def __str__(self) -> str:
        return "nil"


@dataclass(frozen=True, slots=True)
class Field:
    """`.a.b`: fields of the dot."""

    path: tuple[str, ...]
    at: int = 0

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.path)


@dataclass(frozen=True, slots=True)
class Chain:
    """`(…).a.b` or `function.a`: fields of any other operand."""

    node: Operand
    path: tuple[str, ...]
    at: int = 0

    def __str__(self) -> str:
        node = f"({self.node})" if isinstance(self.node, Pipe) else str(self.node)
        return node + "".join(f".{name}" for name in self.path)


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool
    at: int = 0

    def __str__(self) -> str:
        return "true" if self.value else "false"


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written. It is an int, a float or both, until its context decides."""

    text: str
    as_int: int | None
    as_float: float | None
    as_complex: complex | None = None
    #: Written with the syntax of a float: without context, its type is float64.
    is_float: bool = False
    at: int = 0

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class String:
    quoted: str
    value: str
    at: int = 0

    def __str__(self) -> str:
        return self.quoted


@dataclass(frozen=True, slots=True)
class Command:
    """A function or another operand, and its arguments."""

    args: tuple[Operand, ...]
    at: int = 0

    def __str__(self) -> str:
        return " ".join(f"({arg})" if isinstance(arg, Pipe) else str(arg) for arg in self.args)


@dataclass(frozen=True, slots=True)
class Pipe:
    """Commands; the value of each is the last argument of the next. The last value may be given to variables."""

    commands: tuple[Command, ...]
    variables: tuple[Variable, ...] = ()
    #: `=` instead of `:=`.
    assigns: bool = False
    at: int = 0

    def __str__(self) -> str:
        names = ", ".join(map(str, self.variables))
        sign = (" = " if self.assigns else " := ") if names else ""
        return names + sign + " | ".join(map(str, self.commands))


Operand: TypeAlias = Identifier | Variable | Dot | Nil | Field | Chain | Bool | Number | String | Pipe


@dataclass(frozen=True, slots=True)
class Action:
    pipe: Pipe
    at: int = 0

    def __str__(self) -> str:
        return f"{{{{{self.pipe}}}}}"


@dataclass(frozen=True, slots=True)
class Break:
    at: int = 0

    def __str__(self) -> str:
        return "{{break}}"


@dataclass(frozen=True, slots=True)
class Continue:
    at: int = 0

    def __str__(self) -> str:
        return "{{continue}}"


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`, `with` or `range`."""

    keyword: str
    pipe: Pipe
    body: Block
    otherwise: Block | None = None
    at: int = 0

    def __str__(self) -> str:
        otherwise = "" if self.otherwise is None else f"{{{{else}}}}{self.otherwise}"
        return f"{{{{{self.keyword} {self.pipe}}}}}{self.body}{otherwise}{{{{end}}}}"


@dataclass(frozen=True, slots=True)
class Invocation:
    """`{{template "name" pipeline}}`."""

    name: str
    quoted: str
    pipe: Pipe | None
    at: int = 0

    def __str__(self) -> str:
        pipe = "" if self.pipe is None else f" {self.pipe}"
        return f"{{{{template {self.quoted}{pipe}}}}}"


Node: TypeAlias = Text | Action | Branch | Invocation | Break | Continue


@dataclass(frozen=True, slots=True)
class Block:
    nodes: tuple[Node, ...]
    at: int = 0

    def __str__(self) -> str:
        return "".join(map(str, self.nodes))


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template, with the templates that it defines."""

    text: str
    root: Block
    defined: tuple[tuple[str, Block], ...] = ()

    def body_of(self, name: str) -> Block | None:
        return dict(self.defined).get(name)


#: Whatever an error may point at.
AnyNode: TypeAlias = Node | Operand | Command | Block
