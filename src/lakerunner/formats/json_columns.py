"""Collect the values of JSON objects by key and type. Nested keys are joined by dots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.formats.attributes import Entry
from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits

_INT64 = range(-(1 << 63), 1 << 63)


class JsonColumns:
    """Collects records. `is_field` says whether a key may hold a field of the signal."""

    def __init__(self, limits: Limits, tally: Tally, is_field: Callable[[str], bool]) -> None:
        self._limits = limits
        self._tally = tally
        self._is_field = is_field
        self._values: dict[tuple[str, type], tuple[list[int], list[Any]]] = {}

    def add(self, document: dict[str, Any], row: int) -> bool:
        """Add the record of a row. Return False if it is nested too deeply."""
        flat: list[tuple[str, Any]] = []
        if not _flatten(document, "", flat, self._limits.nesting_depth):
            return False
        if len(flat) > self._limits.attributes_per_row:
            flat = self._cut(flat)
        values = self._values
        for key, value in flat:
            slot = values.get((key, type(value)))
            if slot is None:
                slot = values[key, type(value)] = ([], [])
            slot[0].append(row)
            slot[1].append(value)
        return True

    def _cut(self, flat: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Keep every field, wherever it stands, and as many attributes as are allowed."""
        kept, attributes = [], 0
        for key, value in flat:
            is_field = self._is_field(key)
            attributes += not is_field
            if is_field or attributes <= self._limits.attributes_per_row:
                kept.append((key, value))
        self._tally.shorten("attributes_per_row", int(len(kept) < len(flat)))
        return kept

    def entries(self) -> list[Entry]:
        types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
        return [
            Entry(key, np.array(rows, np.int64), pa.array(values, types[kind]), np.arange(len(rows)))
            for (key, kind), (rows, values) in self._values.items()
        ]


def _flatten(document: dict[str, Any], prefix: str, flat: list[tuple[str, Any]], depth: int) -> bool:
    if depth <= 0:
        return False
    for key, value in document.items():
        kind = type(value)
        if kind is dict:
            if not _flatten(value, f"{prefix}{key}.", flat, depth - 1):
                return False
        elif kind is list:
            if not _is_shallow(value, depth - 1):
                return False
            flat.append((prefix + key, orjson.dumps(value).decode()))
        elif kind is int and value not in _INT64:
            flat.append((prefix + key, str(value)))
        elif value is not None:
            flat.append((prefix + key, value))
    return True


def _is_shallow(value: Any, depth: int) -> bool:
    """Return whether arrays and objects within a value are nested at most that deep."""
    children = value.values() if type(value) is dict else value
    if depth <= 0:
        return False
    return all(_is_shallow(child, depth - 1) for child in children if type(child) in (list, dict))
