"""Trees of frozen dataclasses as JSON and back, so that a parsed query travels and its text does not.

Nodes are written one after another, children before parents, and refer to each other by number: chains of operators
are deeper than any JSON parser follows. Only the classes that the language names are ever made.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from lakerunner.model.errors import BadInput

#: Keys of what JSON has no form for: a node by its number, a member of an enum by its class and value.
_NODE, _ENUM = "node", "enum"
#: Decoded trees that are kept, and the longest text of one.
_CACHED_TREES, _CACHED_TEXT = 512, 16_384
#: Made once: `json.dumps` makes one for each call.
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class TreeCodec:
    """Encodes and decodes the trees of one language, made of these classes."""

    def __init__(self, classes: Sequence[type]) -> None:
        self._classes = {each.__name__: each for each in classes}
        self._decoded = lru_cache(maxsize=_CACHED_TREES)(self._decode)

    def encode(self, root: Any) -> str:
        """The tree as text."""
        return dumps(self._nodes(root)).decode()

    def decode(self, text: str) -> Any:
        """The tree that `encode` wrote. Dashboards ask the same again and again, so short ones are kept."""
        if not isinstance(text, str):
            raise BadInput("cannot read an encoded query: it is not text")
        return self._decoded(text) if len(text) <= _CACHED_TEXT else self._decode(text)

    def _nodes(self, root: Any) -> list[Any]:
        """The nodes of the tree, the root last."""
        numbers: dict[int, int] = {}
        nodes: list[Any] = []
        pending = [root]
        while pending:
            node = pending[-1]
            missing = [child for child in _children(node) if id(child) not in numbers]
            if missing:
                pending += missing
                continue
            pending.pop()
            if id(node) not in numbers:
                numbers[id(node)] = len(nodes)
                values = [_plain(getattr(node, each.name), numbers) for each in fields(node)]
                nodes.append([type(node).__name__, *values])
        return nodes

    def _decode(self, text: str) -> Any:
        made: list[Any] = []
        try:
            for name, *values in loads(text):
                made.append(self._classes[name](*(self._value(value, made) for value in values)))
            return made[-1]
        except (ValueError, KeyError, TypeError, IndexError) as reason:
            raise BadInput(f"cannot read an encoded query: {reason!r}") from None

    def _value(self, value: Any, made: Sequence[Any]) -> Any:
        if isinstance(value, list):
            return tuple(self._value(each, made) for each in value)
        if not isinstance(value, dict):
            return value
        if _NODE in value:
            return made[value[_NODE]]
        name, member = value[_ENUM]
        return self._classes[name](member)


def dumps(document: object) -> bytes:
    """JSON in ASCII. The standard library's, because queries hold NaN, infinities and bytes that are no UTF-8."""
    return _ENCODER.encode(document).encode()


def loads(payload: bytes | str) -> Any:
    try:
        # Of bytes, the standard library would find out the encoding first.
        return json.loads(payload if isinstance(payload, str) else payload.decode())
    except ValueError as reason:
        raise BadInput(f"cannot read an encoded query: {reason}") from None


def _children(node: Any) -> Iterator[Any]:
    for each in fields(node):
        value = getattr(node, each.name)
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part):
                yield part


def _plain(value: Any, numbers: dict[int, int]) -> Any:
    if isinstance(value, tuple):
        return [_plain(part, numbers) for part in value]
    if is_dataclass(value):
        return {_NODE: numbers[id(value)]}
    if isinstance(value, enum.Enum):
        return {_ENUM: [type(value).__name__, value.value]}
    return value
