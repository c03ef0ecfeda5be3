"""The series that a rule made of a day, as a sketch: few bytes, and their union says how many series there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakerunner.model.distinct import buckets_of_ids, estimates, highest_of_each

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SeriesOfDay:
    rule_id: int
    #: Days since 1970.
    day: int
    #: Buckets of a HyperLogLog, ascending, as 32-bit numbers.
    sketch: bytes

    @classmethod
    def of(cls, rule_id: int, day: int, tids: Ints) -> SeriesOfDay:
        return cls(rule_id, day, _packed(highest_of_each(np.sort(buckets_of_ids(tids)))))


def union(sketches: Iterable[bytes]) -> bytes:
    """
    >>> some, more = (SeriesOfDay.of(1, 0, np.array(tids)).sketch for tids in ([4_097, 77], [77, 8_194]))
    >>> series_in(some), series_in(union([some, more])), union([some, more]) == union([more, some, some])
    (2, 3, True)
    """
    return _packed(highest_of_each(np.sort(np.concatenate([_buckets(each) for each in sketches]))))


def series_in(sketch: bytes) -> int:
    """About how many series; up to some twenty, nearly always exactly."""
    buckets = _buckets(sketch)
    return int(estimates(np.zeros(len(buckets), np.int64), buckets, 1)[0])


def _buckets(sketch: bytes) -> Ints:
    return np.frombuffer(sketch, "<i4").astype(np.int64)


def _packed(buckets: Ints) -> bytes:
    return buckets.astype("<i4").tobytes()
