"""Give equal keys, rows or lists equal numbers, exactly. Lists are found by hash and then compared."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.formats.attributes import Ints, ranges


def factorize(keys: npt.NDArray[np.int64] | npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Number the distinct keys in order of first occurrence. Return the number of each key, and each first position."""
    ids = pa.array(keys).dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    first = np.zeros(int(ids.max()) + 1 if len(ids) else 0, np.int64)
    # Assigned in reverse order, so that the first occurrence wins.
    first[ids[::-1]] = np.arange(len(ids))[::-1]
    return ids, first


def factorize_rows(*columns: Ints) -> tuple[Ints, Ints]:
    """Like `factorize`, for rows of several small non-negative numbers."""
    key = columns[0]
    for column in columns[1:]:
        key, _ = factorize(key * (int(column.max(initial=0)) + 1) + column)
    return factorize(key)


def factorize_lists(items: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Like `factorize`, for concatenated lists of the given sizes. Lists with equal hashes are compared."""
    starts = np.cumsum(sizes) - sizes
    place = np.arange(len(items)) - np.repeat(starts, sizes)
    for seed in itertools.count(1):
        ids, first = factorize(_hashes(items, place, starts, sizes, seed))
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
    """Mix with the finaliser of splitmix64: every input bit affects every output bit."""
    x = x * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
