"""Aggregations over a block, stated without a query language."""

from __future__ import annotations

import numpy as np
import pytest

from lakerunner.query.series.block import EvaluationError
from lakerunner.query.vectors.aggregate import Aggregation, aggregate, count_values
from tests.query.vectors.evaluations import block, cells_of, evaluation

_A1 = (("job", "a"), ("pod", "1"))
_A2 = (("job", "a"), ("pod", "2"))
_B1 = (("job", "b"), ("pod", "1"))
_VECTOR = block({_A1: [1.0, 2.0], _A2: [3.0, None], _B1: [5.0, 2.0]})


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (Aggregation("sum", ("job",)), {(("job", "a"),): [4.0, 2.0], (("job", "b"),): [5.0, 2.0]}),
        (Aggregation("max", ("pod",), without=True), {(("job", "a"),): [3.0, 2.0], (("job", "b"),): [5.0, 2.0]}),
        (Aggregation("count"), {(): [3.0, 2.0]}),
    ],
)
def test_groups_are_folded_at_every_step(aggregation: Aggregation, expected: object) -> None:
    assert cells_of(aggregate(evaluation(), aggregation, _VECTOR, None)) == expected


def test_topk_keeps_the_series_and_its_labels() -> None:
    found = aggregate(evaluation(), Aggregation("topk", ("job",)), _VECTOR, np.array([1.0, 1.0]))
    assert cells_of(found) == {_A1: [None, 2.0], _A2: [3.0, None], _B1: [5.0, 2.0]}


def test_an_invalid_quantile_is_annotated_at_the_parameter() -> None:
    context = evaluation()
    aggregate(context, Aggregation("quantile", param_position=3), _VECTOR, np.array([2.0, 2.0]))
    assert context.notes.warnings() == ["Test warning: quantile value should be between 0 and 1, got 2 (1:4)"]


def test_count_values_counts_series_per_value() -> None:
    found = count_values(evaluation(), Aggregation("count_values"), "value", _VECTOR)
    ones, twos = (("value", "1"),), (("value", "2"),)
    threes, fives = (("value", "3"),), (("value", "5"),)
    expected = {ones: [1.0, None], twos: [None, 2.0], threes: [1.0, None], fives: [1.0, None]}
    assert cells_of(found) == expected
    with pytest.raises(EvaluationError, match="invalid label name"):
        count_values(evaluation(), Aggregation("count_values"), "", _VECTOR)
