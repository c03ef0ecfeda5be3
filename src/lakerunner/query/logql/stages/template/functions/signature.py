"""What a template function takes, so that arguments of a wrong type are refused as Go refuses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.query.logql.stages.template.go_types import Value

#: Types of parameters, by their names in Go.
STRING, INT, FLOAT, TIME, DURATION, ZONE = "string", "int", "float64", "time.Time", "time.Duration", "*time.Location"
#: Anything. A builtin looks at the value itself, also where it is nil.
ANY, REFLECTED = "interface {}", "reflect.Value"


@dataclass(frozen=True, slots=True)
class Function:
    """`call` raises a GoError where Go's function returns an error or panics."""

    name: str
    parameters: tuple[str, ...]
    call: Callable[..., Value]
    #: Whether the last parameter may be given any number of times.
    variadic: bool = False
    #: Whether two calls with the same arguments may differ.
    pure: bool = True
    #: Why no template can call it, although it exists.
    refused: str = ""


def takes(name: str, parameters: tuple[str, ...], call: Callable[..., Value], *, variadic: bool = False) -> Function:
    return Function(name, parameters, call, variadic)
