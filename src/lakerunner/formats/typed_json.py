"""Nested attribute values of spans as JSON from which the exact value can be read back.

JSON has no bytes, no NaN and no infinities. Each is an object with one key that begins with `$`, as is a map with such
a key of its own: `{"$bytes": "AAE="}`, `{"$double": "NaN"}`, `{"$map": {"$bytes": 1}}`. A double always has a point or
an exponent.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import orjson

BYTES_KEY, DOUBLE_KEY, MAP_KEY = "$bytes", "$double", "$map"


def typed_json(value: Any) -> str:
    """Render Python values, of which bytes are bytes.

    >>> typed_json([1, 2.0, b"ab", {"a": None}])
    '[1,2.0,{"$bytes":"YWI="},{"a":null}]'
    """
    return orjson.dumps(_marked(value)).decode()


def _marked(value: Any) -> Any:
    match value:
        case bytes():
            return {BYTES_KEY: base64.b64encode(value).decode()}
        case float() if not math.isfinite(value):
            return {DOUBLE_KEY: "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"}
        case list():
            return [_marked(item) for item in value]
        case dict():
            members = {key: _marked(member) for key, member in value.items()}
            return {MAP_KEY: members} if len(members) == 1 and next(iter(members)).startswith("$") else members
        case _:
            return value


def from_typed_json(document: str | bytes) -> Any:
    """Parse what `typed_json` rendered. Raises ValueError on other text.

    >>> from_typed_json('{"a":{"$bytes":"YWI="},"b":{"$double":"+Inf"}}')
    {'a': b'ab', 'b': inf}
    """
    return _unmarked(orjson.loads(document))


def _unmarked(value: Any) -> Any:
    match value:
        case list():
            return [_unmarked(item) for item in value]
        case dict() if len(value) == 1 and next(iter(value)).startswith("$"):
            ((key, member),) = value.items()
            if key == BYTES_KEY and isinstance(member, str):
                try:
                    return base64.b64decode(member, validate=True)
                except binascii.Error as reason:
                    raise ValueError(f"invalid bytes: {reason}") from None
            if key == DOUBLE_KEY and isinstance(member, str):
                return float(member)
            if key == MAP_KEY and isinstance(member, dict):
                return {name: _unmarked(each) for name, each in member.items()}
            return value
        case dict():
            return {key: _unmarked(member) for key, member in value.items()}
        case _:
            return value
