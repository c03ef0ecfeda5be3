"""Counts of durations per group, power of two and step, in one pass over starts and durations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numba import njit

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql.labels import encoded_label
from lakerunner.query.traceql.metric_cells import BUCKET, Cells, Groups, Labelled, grouped, step_of, too_many_series
from lakerunner.query.traceql.values import FLOAT

_NS_PER_S = 1e9
#: Durations are less than two to this power.
_POWERS = 64


class DurationBuckets:
    """Adds up counts. What is added must have been counted over the same steps."""

    def __init__(self, max_groups: int) -> None:
        self._max_groups = max_groups
        self._counts: dict[LabelSet, Ints] = {}

    def add(self, part: dict[LabelSet, Ints]) -> None:
        for labels, counts in part.items():
            found = self._counts.get(labels)
            if found is not None:
                found += counts
            elif len(self._counts) >= self._max_groups:
                raise too_many_series(self._max_groups)
            else:
                self._counts[labels] = counts

    def groups(self) -> Groups:
        """Each bucket of a group as a group of its own."""
        found: Groups = {}
        for labels, counts in self._counts.items():
            for power in np.flatnonzero(counts.any(axis=1)).tolist():
                bound = encoded_label(FLOAT, float(np.exp2(power)) / _NS_PER_S)
                cells = Cells.empty(counts.shape[1])
                cells.count += counts[power]
                found[labels.with_label(BUCKET, bound)] = cells
        return found


def counted(
    columns: Sequence[Labelled],
    start_ns: Ints,
    duration_ns: Ints,
    first_ns: int,
    width_ns: int,
    steps: int,
    max_groups: int,
) -> tuple[dict[LabelSet, Ints], int]:
    """Counts per group, by power of two and step, and the number of spans whose start is at one of the steps."""
    group, first = grouped(columns, len(start_ns))
    if len(first) > max_groups:
        raise too_many_series(max_groups)
    counts = np.zeros((len(first), _POWERS, steps), np.int64)
    seen = int(_counted(start_ns, duration_ns, group, len(columns) > 0, first_ns, width_ns, counts))
    found: dict[LabelSet, Ints] = {}
    for number, row in enumerate(first.tolist()):
        pairs = {each.name: text for each in columns if (text := each.label(int(each.code[row]))) is not None}
        labels = LabelSet.of(pairs)
        found[labels] = found[labels] + counts[number] if labels in found else counts[number]
    return found, seen


@njit(cache=True, nogil=True)
def _counted(
    start_ns: Ints,
    duration_ns: Ints,
    group: Ints,
    is_grouped: bool,
    first_ns: int,
    width_ns: int,
    counts: npt.NDArray[np.int64],
) -> int:
    steps, seen = counts.shape[2], 0
    per_ns = 1.0 / width_ns
    for row in range(len(start_ns)):
        step = step_of(start_ns[row] - first_ns, width_ns, per_ns, steps)
        if step < 0:
            continue
        seen += 1
        if duration_ns[row] < 2:
            continue
        counts[group[row] if is_grouped else 0, _bits(duration_ns[row] - 1), step] += 1
    return seen


@njit(cache=True, nogil=True)
def _bits(number: int) -> int:
    """The number of binary digits of a number, so that two to its power is greater."""
    found = 0
    for shift in (32, 16, 8, 4, 2):
        if number >> shift:
            number >>= shift
            found += shift
    return found + (2 if number > 1 else number)


def warm() -> None:
    one: Ints = np.ones(1, np.int64)
    counted((), one, one, 0, 1, 1, 1)
