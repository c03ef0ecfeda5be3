"""What OTLP means, written slowly and plainly over opentelemetry-proto: the decoders are held against it."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from lakerunner.formats.number_text import float_text
from lakerunner.model.labels import attribute_column

TEXT_KINDS = {"string_value", "array_value", "kvlist_value", "bytes_value"}


def plain(value: AnyValue) -> Any:
    """The value as Python would have it within JSON."""
    kind = value.WhichOneof("value")
    if kind is None or kind == "string_value_strindex":
        return None
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if kind == "double_value" and not math.isfinite(value.double_value):
        return float_text(value.double_value)
    return getattr(value, kind)


def typed(value: AnyValue) -> Any:
    """The value within the JSON of spans, from which the exact value can be told."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [typed(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        found = {pair.key: typed(pair.value) for pair in value.kvlist_value.values}
        return {"$map": found} if len(found) == 1 and next(iter(found)).startswith("$") else found
    if kind == "bytes_value":
        return {"$bytes": plain(value)}
    if kind == "double_value" and not math.isfinite(value.double_value):
        return {"$double": plain(value)}
    return plain(value)


def cell(value: AnyValue, nested: Callable[[AnyValue], Any] = plain) -> tuple[str, Any] | None:
    """Type and value in a column, None where the key has no value."""
    kind = value.WhichOneof("value")
    if kind is None or kind == "string_value_strindex":
        return None
    if kind in ("array_value", "kvlist_value"):
        return "text", orjson.dumps(nested(value)).decode()
    if kind in TEXT_KINDS:
        return "text", plain(value)
    return kind, getattr(value, kind)


def text(content: Any) -> str:
    """The content of a cell in a column of mixed kinds. A whole number has one text, as integer and as double."""
    if isinstance(content, float) and math.isfinite(content):
        return float_text(content)
    return str(pa.scalar(content).cast(pa.string()).as_py())


def go_json(value: AnyValue) -> str:
    """The value as Go's OTLP library writes it: keys sorted, whole doubles as integers."""

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: whole(member) for key, member in value.items()}
        if isinstance(value, list):
            return [whole(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53 else value

    return orjson.dumps(whole(plain(value)), option=orjson.OPT_SORT_KEYS).decode()


def flat(pairs: Any, prefix: str = "") -> list[KeyValue]:
    """The pairs without nested lists, whose pairs are named by their path, and with arrays as text."""
    found: list[KeyValue] = []
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        if kind == "kvlist_value":
            found += flat(pair.value.kvlist_value.values, f"{prefix}{pair.key}.")
        elif kind == "array_value":
            found.append(KeyValue(key=prefix + pair.key, value=AnyValue(string_value=go_json(pair.value))))
        else:
            found.append(KeyValue(key=prefix + pair.key, value=pair.value))
    return found


def go_message(value: AnyValue) -> str | None:
    return go_json(value) if value.WhichOneof("value") in ("array_value", "kvlist_value") else message(value)


def message(value: AnyValue, nested: Callable[[AnyValue], Any] = plain) -> str | None:
    found = cell(value, nested)
    if found is None:
        return None
    kind, content = found
    if kind == "double_value":
        return float_text(content)
    return text(content)


def attribute_rows(rows: list[dict[str, list[Any]]], nested: Callable[[AnyValue], Any] = plain) -> list[dict[str, Any]]:
    """Attribute columns and overflow of rows given as prefix -> key-value pairs."""
    types: dict[str, set[str]] = {}
    inexact: set[str] = set()
    placed: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for row in rows:
        columns: dict[str, Any] = {}
        losers: dict[str, Any] = {}
        for prefix, pairs in row.items():
            known = [
                (pair.key, at, found)
                for at, pair in enumerate(pairs)
                if (found := cell(pair.value, nested)) is not None
            ]
            last: dict[str, int] = {}
            for key, at, _ in known:
                last[attribute_column(prefix, key)] = at
            for key, at, (kind, content) in known:
                name = attribute_column(prefix, key)
                types.setdefault(name, set()).add(kind)
                if kind == "int_value" and abs(content) > 2**53:
                    inexact.add(name)
                if last[name] == at:
                    columns[name] = content
                else:
                    losers.setdefault(f"{prefix}_{key}", content)
        placed.append((columns, losers))
    result = []
    for columns, losers in placed:
        out = {name: _fitted(v, types[name], exact=name not in inexact) for name, v in columns.items()}
        if losers:
            out["attributes_overflow"] = sorted((name, text(v)) for name, v in losers.items())
        result.append(out)
    return result


def _fitted(content: Any, types: set[str], *, exact: bool) -> Any:
    """The content as its column holds it: numbers as doubles where that does not round, other mixed kinds as text."""
    if len(types) == 1:
        return content
    return float(content) if exact and types == {"int_value", "double_value"} else text(content)


def hex_id(raw: bytes) -> str | None:
    return raw.hex() if any(raw) or (raw and len(raw) not in (8, 16)) else None


def present(row: dict[str, Any]) -> dict[str, Any]:
    """The row without its nulls, floats made comparable (NaN equals NaN), empty maps left out."""
    return {
        name: repr(value) if isinstance(value, float) else value
        for name, value in row.items()
        if value is not None and not (name == "attributes_overflow" and not value)
    }
