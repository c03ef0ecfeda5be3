"""HyperLogLog as a native histogram: which register a value falls into, and how many values some registers stand for.

A value sets one of `REGISTERS` registers to at least its rank. Each pair of register and rank is a bucket of an
exponential histogram, so the union of two sketches is the sum of two histograms: whatever adds histograms up (windows,
groups, late rows, compaction) merges sketches, and a register is the highest rank of it that has a count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit, uint64

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: 4,096 registers: a standard error of 1.6%. Up to some twenty values, the rounded estimate is nearly always exact.
LG_REGISTERS = 12
REGISTERS = 1 << LG_REGISTERS
STANDARD_ERROR = 1.04 / REGISTERS**0.5
#: Ranks go from 1 to 53, and a register takes 64 buckets, so that bucket numbers are those of histograms of schema 8.
_LG_RANKS = 6
_MOST_RANK = 64 - LG_REGISTERS + 1
SCHEMA = 8
#: Tells these histograms from others of the same schema: nothing is counted there.
ZERO_THRESHOLD = 2.0**-120

_FIRST, _SECOND = uint64(0xFF51AFD7ED558CCD), uint64(0xC4CEB9FE1A85EC53)
_SEED = uint64(0x9E3779B97F4A7C15)


def buckets_of(texts: pa.StringArray) -> Ints:
    """The bucket of each text: its register times 64, plus its rank.

    >>> buckets = buckets_of(pa.array(["a", "b", "a"]))
    >>> bool(buckets[0] == buckets[2]), bool(buckets[0] == buckets[1])
    (True, False)
    """
    found = np.zeros(len(texts), np.int64)
    if len(texts):
        _, offsets, data = texts.buffers()
        starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        _add_buckets(content, starts, found)
    return found


def buckets_of_ids(ids: Ints) -> Ints:
    """The bucket of each id of 64 bits that is a hash already.

    >>> buckets_of_ids(np.array([1 << 12, 1 << 13, 0, -1])).tolist()
    [1, 2, 53, 262081]
    """
    rest = ids.view(np.uint64) >> np.uint64(LG_REGISTERS)
    lowest = rest & (~rest + np.uint64(1))
    rank = np.where(rest == 0, _MOST_RANK, np.log2(np.maximum(lowest, 1).astype(np.float64)) + 1)
    return ((ids & (REGISTERS - 1)) << _LG_RANKS) + rank.astype(np.int64)


def highest_of_each(buckets: Ints) -> Ints:
    """One bucket per register, that of its highest rank. Buckets ascend."""
    register = buckets >> _LG_RANKS
    return buckets[np.append(np.diff(register) != 0, True)] if len(buckets) else buckets


def highest(groups: Ints, buckets: Ints, counts: Floats) -> tuple[Ints, Ints, Floats]:
    """One bucket per group and register, that of its highest rank, with all of the register's counts.

    Groups and their buckets are in order.
    """
    if not len(groups):
        return groups, buckets, counts
    register = buckets >> _LG_RANKS
    first = np.flatnonzero(np.concatenate([[True], (np.diff(groups) != 0) | (np.diff(register) != 0)]))
    last = np.append(first[1:], len(groups)) - 1
    return groups[last], buckets[last], np.add.reduceat(counts, first)


def estimates(owner: Ints, buckets: Ints, owners: int) -> Floats:
    """How many values each owner of some buckets has seen, rounded to whole numbers. Buckets of an owner ascend.

    Ertl's estimator (https://arxiv.org/abs/1702.01284, algorithm 6), which needs no corrections for small numbers.
    """
    register = buckets >> _LG_RANKS
    is_last = np.append((np.diff(owner) != 0) | (np.diff(register) != 0), True) if len(owner) else np.zeros(0, np.bool_)
    width = _MOST_RANK + 1
    rank = np.minimum(buckets[is_last] & ((1 << _LG_RANKS) - 1), _MOST_RANK)
    ranks = (
        np.bincount(owner[is_last] * width + rank, minlength=owners * width).reshape(owners, width).astype(np.float64)
    )
    ranks[:, 0] = REGISTERS - ranks[:, 1:].sum(axis=1)
    z = REGISTERS * _tau(1.0 - ranks[:, _MOST_RANK] / REGISTERS)
    for k in range(_MOST_RANK - 1, 0, -1):
        z = 0.5 * (z + ranks[:, k])
    with np.errstate(divide="ignore"):
        z += REGISTERS * _sigma(ranks[:, 0] / REGISTERS)
        found: Floats = np.round(REGISTERS * REGISTERS / (2.0 * np.log(2.0)) / z)
    return found


def _sigma(x: Floats) -> Floats:
    """x + x² + 2x⁴ + 4x⁸ + …; infinite at 1."""
    total, factor, power = x.copy(), 1.0, x
    for _ in range(64):
        power = power * power
        more = total + power * factor
        if (more == total).all():
            break
        total, factor = more, factor + factor
    return np.where(x == 1.0, np.inf, total)


def _tau(x: Floats) -> Floats:
    """(1 - x - Σ (1 - x^(2^-k))² 2^-k) / 3."""
    total, factor, root = 1.0 - x, 1.0, x
    for _ in range(64):
        root, factor = np.sqrt(root), factor * 0.5
        less = total - (1.0 - root) ** 2 * factor
        if (less == total).all():
            break
        total = less
    return np.where((x == 0.0) | (x == 1.0), 0.0, total / 3.0)


@njit(cache=True, nogil=True)
def _add_buckets(data: Any, offsets: Any, found: Any) -> None:
    for row in range(len(offsets) - 1):
        mixed: Any = uint64(offsets[row + 1] - offsets[row]) * _SEED
        word: Any = uint64(0)
        begin = offsets[row]
        for at in range(begin, offsets[row + 1]):
            word = (word << uint64(8)) | uint64(data[at])
            if (at - begin) & 7 == 7:
                mixed = _mixed(mixed ^ word)
                word = uint64(0)
        mixed = _mixed(mixed ^ word)
        register = mixed >> uint64(64 - LG_REGISTERS)
        rest = mixed << uint64(LG_REGISTERS)
        rank = 1
        while rank < _MOST_RANK and not rest >> uint64(63):
            rest = rest << uint64(1)
            rank += 1
        found[row] = np.int64(register) * (1 << _LG_RANKS) + rank


@njit(cache=True, nogil=True)
def _mixed(word: Any) -> Any:
    """Every bit of the result depends on every bit of the word, as in MurmurHash3."""
    word = (word ^ (word >> uint64(33))) * _FIRST
    word = (word ^ (word >> uint64(33))) * _SECOND
    return word ^ (word >> uint64(33))
