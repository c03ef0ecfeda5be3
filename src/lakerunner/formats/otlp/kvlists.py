"""Flatten attributes that are lists of key-value pairs: `{a: {b: 1}}` becomes the attribute `a.b`.

Each distinct list is parsed once. An empty list leaves nothing.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.formats.attributes import Entry, Ints, cut_text, ranges
from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits, cut_key

#: The place of a pair in its row is shifted by this, to make room for the places within a list.
PLACE_BITS = 20
_TYPES = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}


@dataclass(slots=True)
class _Leaves:
    """The values in all distinct lists: the number of its list, its path, its type and its place among that type."""

    lists: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    types: list[type] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    within: list[int] = field(default_factory=list)
    values: dict[type, list[Any]] = field(default_factory=lambda: {kind: [] for kind in _TYPES})

    def add(self, number: int, within: int, path: str, value: Any) -> None:
        kind = type(value)
        self.within.append(within)
        self.lists.append(number)
        self.paths.append(path)
        self.types.append(kind)
        self.places.append(len(self.values[kind]))
        self.values[kind].append(value)


@dataclass(frozen=True, slots=True)
class FlatLists:
    """The leaves of all lists of a level, by the position of the list."""

    #: The number of each position's list; -1 where there is none.
    number: Ints
    lists: Ints
    codes: Ints
    names: list[tuple[str, type]]
    places: Ints
    #: The place of each leaf within its list.
    within: Ints
    arrays: dict[type, pa.Array]

    @classmethod
    def of(
        cls, wires: pa.Array, parse: Callable[[bytes], Any], as_json: Callable[[Any], str], limits: Limits, tally: Tally
    ) -> FlatLists:
        encoded = wires.dictionary_encode()
        leaves = _Leaves()
        for number, wire in enumerate(encoded.dictionary.to_pylist()):
            found = list(itertools.islice(_walk("", parse(wire).values, as_json), limits.attributes_per_row + 1))
            if len(found) > limits.attributes_per_row:
                tally.shorten("attributes_per_row", 1)
            for within, (path, value) in enumerate(found[: limits.attributes_per_row]):
                leaves.add(number, within, path, value)
        names: dict[tuple[str, type], int] = {}
        codes = [names.setdefault(name, len(names)) for name in zip(leaves.paths, leaves.types, strict=True)]
        arrays = {kind: pa.array(values, _TYPES[kind]) for kind, values in leaves.values.items()}
        arrays[str] = cut_text(arrays[str], limits, tally)
        number = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(
            number,
            np.array(leaves.lists, np.int64),
            np.array(codes, np.int64),
            list(names),
            np.array(leaves.places, np.int64),
            np.array(leaves.within, np.int64),
            arrays,
        )

    def entries(
        self, key: str, positions: Ints, rows: npt.NDArray[np.int64], limits: Limits, tally: Tally
    ) -> Iterator[Entry]:
        """Yield the attributes that become of the lists at these positions, which have this key."""
        number = self.number[positions]
        by_list = np.argsort(number, kind="stable")
        starts = np.searchsorted(number[by_list], self.lists)
        counts = np.searchsorted(number[by_list], self.lists, side="right") - starts
        # In the order of codes, so that the values of one path are neighbours.
        order = np.argsort(self.codes, kind="stable")
        holders = positions[by_list][ranges(starts[order], counts[order])]
        leaf = np.repeat(order, counts[order])
        ends = np.cumsum(np.bincount(self.codes[leaf], minlength=len(self.names)))
        start = 0
        for (path, kind), end in zip(self.names, ends.tolist(), strict=True):
            if end > start:
                at = holders[start:end]
                full = cut_key(f"{key}.{path}", end - start, limits, tally)
                place = (at << PLACE_BITS) + self.within[leaf[start:end]]
                yield Entry(full, rows[at], self.arrays[kind], self.places[leaf[start:end]], place)
            start = end


def _walk(prefix: str, pairs: Any, as_json: Callable[[Any], str]) -> Iterator[tuple[str, Any]]:
    for pair in pairs:
        path = prefix + str(pair.key.decode("utf-8", "replace"))
        value = pair.value
        match value.WhichOneof("value"):
            case "kvlist_value":
                yield from _walk(f"{path}.", value.kvlist_value.values, as_json)
            case "array_value":
                yield path, as_json(value)
            case "string_value":
                yield path, value.string_value.decode("utf-8", "replace")
            case "bytes_value":
                yield path, base64.b64encode(value.bytes_value).decode()
            case None | "string_value_strindex":
                continue
            case member:
                yield path, getattr(value, member)
