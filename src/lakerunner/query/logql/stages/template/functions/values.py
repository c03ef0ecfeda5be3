"""Functions of any value: Go's builtins, `default` and `fromJson`."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any

import orjson

from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.template.functions.signature import ANY, REFLECTED, STRING, Function, takes
from lakerunner.query.logql.stages.template.functions.texts import url_encoded
from lakerunner.query.logql.stages.template.go_fmt import printed, sprint, sprintf, sprintln
from lakerunner.query.logql.stages.template.go_time import Time
from lakerunner.query.logql.stages.template.go_types import (
    NIL,
    Labels,
    Uint8,
    Value,
    from_bytes,
    is_true,
    runes,
    to_bytes,
    type_name,
)

_BAD_COMPARISON = "invalid type for comparison"
_HTML = {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
_NEGATIVE_ZERO = re.compile(r"-0(?![.0-9])")
_JS = {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}


def _kind(value: Value) -> str | None:
    """What Go compares a value as."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Uint8):
        return "uint"
    for kind in (int, float, str, complex):
        if isinstance(value, kind):
            return kind.__name__
    return None


def _absent(value: Value) -> bool:
    return value is None or value is NIL


def _numbers(first: str | None, second: str | None) -> bool:
    return {first, second} == {"int", "uint"}


def equal(value: Value, *others: Value) -> bool:
    """Whether the value equals one of the others."""
    if not others:
        raise GoError("missing argument for comparison")
    kind = _kind(value)
    for other in others:
        other_kind = _kind(other)
        if kind != other_kind and not _numbers(kind, other_kind):
            if not _absent(value) and not _absent(other):
                raise GoError(f"incompatible types for comparison: {type_name(value)} and {type_name(other)}")
        elif kind is None:
            if _same(value, other):
                return True
        elif value == other:
            return True
    return False


def _same(value: Value, other: Value) -> bool:
    """Equality of values that are no basic ones."""
    if _absent(value) or _absent(other):
        return _absent(value) and _absent(other)
    if type(value) is not type(other) and isinstance(value, dict) != isinstance(other, dict):
        shown = (printed(value), type_name(value), type_name(other), printed(other))
        raise GoError("non-comparable types {}: {}, {}: {}".format(*shown))
    if not isinstance(other, Time):
        raise GoError(f"non-comparable type {printed(other)}: {type_name(other)}")
    return bool(value == other)


def less(value: Value, other: Value) -> bool:
    kind, other_kind = _kind(value), _kind(other)
    if kind is None or other_kind is None:
        raise GoError(_BAD_COMPARISON)
    if kind != other_kind and not _numbers(kind, other_kind):
        raise GoError(f"incompatible types for comparison: {type_name(value)} and {type_name(other)}")
    if kind in ("bool", "complex"):
        raise GoError(_BAD_COMPARISON)
    if kind == "str":
        return to_bytes(value) < to_bytes(other)
    return bool(value < other)


def less_or_equal(value: Value, other: Value) -> bool:
    return less(value, other) or equal(value, other)


def _length(value: Value) -> int:
    if value is None:
        raise GoError("reflect: call of reflect.Value.Type on zero Value")
    if value is NIL:
        raise GoError("len of nil pointer")
    if isinstance(value, str):
        return len(to_bytes(value))
    if isinstance(value, dict | list):
        return len(value)
    raise GoError(f"len of type {type_name(value)}")


def _position(index: Value, size: int) -> int:
    if _absent(index):
        raise GoError("cannot index slice/array with nil")
    if isinstance(index, bool) or not isinstance(index, int):
        raise GoError(f"cannot index slice/array with type {type_name(index)}")
    if not 0 <= index <= size:
        raise GoError(f"index out of range: {int(index)}")
    return int(index)


def _index(item: Value, *indexes: Value) -> Value:
    if _absent(item):
        raise GoError("index of untyped nil")
    for index in indexes:
        if _absent(item):
            raise GoError("index of nil pointer")
        item = _indexed(item, index)
    return item


def _indexed(item: Value, index: Value) -> Value:
    if isinstance(item, dict):
        if _absent(index):
            raise GoError("value is nil; should be of type string")
        if not isinstance(index, str):
            raise GoError(f"value has type {type_name(index)}; should be string")
        return item.get(index, "" if isinstance(item, Labels) else NIL)
    if isinstance(item, str | list):
        elements = to_bytes(item) if isinstance(item, str) else item
        at = _position(index, len(elements))
        if at == len(elements):
            kind = "string" if isinstance(item, str) else "slice"
            raise GoError(f"reflect: {kind} index out of range")
        return Uint8(elements[at]) if isinstance(item, str) else elements[at]
    raise GoError(f"can't index item of type {type_name(item)}")


def _slice(item: Value, *indexes: Value) -> Value:
    if _absent(item):
        raise GoError("slice of untyped nil")
    if len(indexes) > 3:
        raise GoError(f"too many slice indexes: {len(indexes)}")
    if isinstance(item, str):
        if len(indexes) == 3:
            raise GoError("cannot 3-index slice a string")
        elements: Any = to_bytes(item)
    elif isinstance(item, list):
        elements = item
    else:
        raise GoError(f"can't slice item of type {type_name(item)}")
    bounds = [0, len(elements)]
    for number, index in enumerate(indexes):
        bounds[number : number + 1] = [_position(index, len(elements))]
    for low, high in itertools.pairwise(bounds):
        if low > high:
            raise GoError(f"invalid slice index: {low} > {high}")
    cut = elements[bounds[0] : bounds[1]]
    return from_bytes(cut) if isinstance(item, str) else cut


def _call(name: str, function: Value, *_: Value) -> Value:
    """Refuses: labels hold no functions."""
    if _absent(function):
        raise GoError("call of nil")
    raise GoError(f"non-function {name} of type {type_name(function)}")


def _text(values: tuple[Value, ...]) -> str:
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return sprint(["<no value>" if _absent(value) else value for value in values])


def _html(*values: Value) -> str:
    return "".join(_HTML.get(c, c) for c in _text(values))


def _js(*values: Value) -> str:
    return "".join(map(_js_rune, _text(values)))


def _js_rune(c: str) -> str:
    if c in _JS:
        return _JS[c]
    if c < " ":
        return f"\\u00{ord(c):02X}"
    # A byte that is not UTF-8 stays as it is, since U+FFFD, which stands for it, is printable.
    rune = runes(c)
    if c.isascii() or rune.isprintable():
        return c
    return f"\\u{ord(rune):04X}"


def is_empty(value: Value) -> bool:
    """Whether `default` replaces the value."""
    return not isinstance(value, Time) and not is_true(value)


def _default(fallback: Value, *given: Value) -> Value:
    return fallback if not given or is_empty(given[0]) else given[0]


def _refused_constant(name: str) -> float:
    raise ValueError(name)


def _json_number(text: str) -> Value:
    number = float(text)
    return NIL if math.isinf(number) else number


def _boxed(value: Value) -> Value:
    """All numbers are floats, and what is null within a container is an interface without a value."""
    if value is None:
        return NIL
    if type(value) is int:
        return float(value)
    if isinstance(value, dict):
        return {key: each if type(each) is str else _boxed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [each if type(each) is str else _boxed(each) for each in value]
    return value


def _repaired(value: Value) -> Value:
    """With U+FFFD for halves of surrogate pairs, which only escapes can spell."""
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in value)
    if isinstance(value, dict):
        return {_repaired(key): _repaired(each) for key, each in value.items()}
    return [_repaired(each) for each in value] if isinstance(value, list) else value


def from_json(text: str) -> Value:
    """The value of a JSON text; none if it is broken."""
    text = runes(text)
    try:
        value = _odd_json(text) if _NEGATIVE_ZERO.search(text) else _boxed(orjson.loads(text))
    except orjson.JSONDecodeError:
        # Go also reads numbers that are too large, deep nesting, and halves of surrogate pairs.
        value = _odd_json(text)
    return None if value is NIL else value


def _odd_json(text: str) -> Value:
    try:
        value = json.loads(text, parse_constant=_refused_constant, parse_int=_json_number, parse_float=_json_number)
        return _boxed(_repaired(value))
    except (ValueError, RecursionError):
        return None


FUNCTIONS: tuple[Function, ...] = (
    takes("default", (ANY, ANY), _default, variadic=True),
    takes("fromJson", (STRING,), from_json),
    takes("eq", (REFLECTED, REFLECTED), equal, variadic=True),
    takes("ne", (REFLECTED, REFLECTED), lambda a, b: not equal(a, b)),
    takes("lt", (REFLECTED, REFLECTED), less),
    takes("le", (REFLECTED, REFLECTED), less_or_equal),
    takes("gt", (REFLECTED, REFLECTED), lambda a, b: not less_or_equal(a, b)),
    takes("ge", (REFLECTED, REFLECTED), lambda a, b: not less(a, b)),
    # `and` and `or` are evaluated by the interpreter, which skips arguments.
    takes("and", (REFLECTED, REFLECTED), lambda *values: values[-1], variadic=True),
    takes("or", (REFLECTED, REFLECTED), lambda *values: values[-1], variadic=True),
    takes("not", (REFLECTED,), lambda value: not is_true(value)),
    takes("len", (REFLECTED,), _length),
    takes("index", (REFLECTED, REFLECTED), _index, variadic=True),
    takes("slice", (REFLECTED, REFLECTED), _slice, variadic=True),
    takes("call", (REFLECTED, REFLECTED), _call, variadic=True),
    takes("print", (ANY,), lambda *values: sprint(values), variadic=True),
    takes("println", (ANY,), lambda *values: sprintln(values), variadic=True),
    takes("printf", (STRING, ANY), lambda pattern, *values: sprintf(pattern, values), variadic=True),
    takes("html", (ANY,), _html, variadic=True),
    takes("js", (ANY,), _js, variadic=True),
    takes("urlquery", (ANY,), lambda *values: url_encoded(_text(values)), variadic=True),
)
