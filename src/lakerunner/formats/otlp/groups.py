"""Equal things get equal numbers: distinct lists and distinct combinations, found by hashing, exactly."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.formats.attributes import Ints, ranges


def numbered(keys: npt.NDArray[np.int64] | npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """The number of each key, counted in order of first sight, and where each number was seen first."""
    ids = pa.array(keys).dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    first = np.zeros(int(ids.max()) + 1 if len(ids) else 0, np.int64)
    # Written backwards, so that the first sight is what stays.
    first[ids[::-1]] = np.arange(len(ids))[::-1]
    return ids, first


def combined(*columns: Ints) -> tuple[Ints, Ints]:
    """As `numbered`, for rows of several small non-negative numbers."""
    key = columns[0]
    for column in columns[1:]:
        key, _ = numbered(key * (int(column.max(initial=0)) + 1) + column)
    return numbered(key)


def distinct_lists(items: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """As `numbered`, for lists laid end to end. Equality is checked, not taken from the hash."""
    starts = np.cumsum(sizes) - sizes
    place = np.arange(len(items)) - np.repeat(starts, sizes)
    for seed in itertools.count(1):
        ids, first = numbered(_hashes(items, place, starts, sizes, seed))
        like = first[ids]
        if np.array_equal(sizes, sizes[like]) and np.array_equal(items, items[ranges(starts[like], sizes)]):
            return ids, first
    raise AssertionError


def _hashes(items: Ints, place: Ints, starts: Ints, sizes: Ints, seed: int) -> npt.NDArray[np.uint64]:
    mixed = _mix(_mix(items.astype(np.uint64) + np.uint64(seed)) ^ place.astype(np.uint64))
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)))
    hashes: npt.NDArray[np.uint64] = total[starts + sizes] - total[starts] + sizes.astype(np.uint64)
    return hashes


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: every bit of the input moves every bit of the output."""
    x = x * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
