"""Values at neighbouring ranks: those of the sorted values, however they are distributed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lakerunner.query.vectors.kernels_select import ranked_pair

_random = np.random.default_rng(11)
_VALUES = {
    "few": _random.normal(size=100),
    "normal": _random.normal(size=20_000),
    "long tail": _random.pareto(1.1, 20_000),
    "equal": np.full(20_000, 3.0),
    "two values": np.repeat([1.0, 2.0], [19_000, 1_000]),
    "sorted": np.arange(20_000.0),
    "reversed": np.arange(20_000.0)[::-1].copy(),
    "infinite": np.where(_random.random(20_000) < 0.3, math.inf, -math.inf),
    # The sample sees the large ones alone.
    "misleading": np.where(np.arange(20_480) % 20 == 0, 1e6 + np.arange(20_480), np.arange(20_480.0)),
}


@pytest.mark.parametrize("name", _VALUES)
def test_pairs_are_those_of_the_sorted_values(name: str) -> None:
    values = _VALUES[name]
    in_order, last = np.sort(values), len(values) - 1
    for low in sorted({0, 1, last // 100, last // 2, last * 9 // 10, last * 99 // 100, last - 1, last}):
        assert ranked_pair(values, low) == (in_order[low], in_order[min(low + 1, last)])
