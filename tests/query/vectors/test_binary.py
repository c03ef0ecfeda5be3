"""Binary operators between blocks, stated without a query language."""

from __future__ import annotations

import numpy as np
import pytest

from lakerunner.query.series.block import EvaluationError
from lakerunner.query.vectors.binary import set_operation, vector_scalar, vector_vector
from lakerunner.query.vectors.matching import BinaryOperation, Cardinality, Matching
from tests.query.vectors.evaluations import block, cells_of, evaluation

_A1 = (("job", "a"), ("pod", "1"))
_A2 = (("job", "a"), ("pod", "2"))
_B1 = (("job", "b"), ("pod", "1"))
_A, _B = (("job", "a"),), (("job", "b"),)
_PODS = block({_A1: [1.0, 2.0], _A2: [3.0, None], _B1: [5.0, 2.0]})
_JOBS = block({_A: [10.0, 20.0]})


def test_many_series_match_one_by_a_label() -> None:
    matching = Matching(Cardinality.MANY_TO_ONE, on=True, labels=("job",))
    found = vector_vector(evaluation(), BinaryOperation("*", matching), _PODS, _JOBS)
    assert cells_of(found) == {_A1: [10.0, 40.0], _A2: [30.0, None]}


def test_missing_series_are_filled_in() -> None:
    matching = Matching(on=True, labels=("job",), fill_right=100.0)
    left = block({_A: [1.0, 2.0], _B: [3.0, 4.0]})
    found = vector_vector(evaluation(), BinaryOperation("+", matching), left, _JOBS)
    assert cells_of(found) == {_A: [11.0, 22.0], _B: [103.0, 104.0]}


def test_two_series_on_the_one_side_are_refused() -> None:
    matching = Matching(on=True, labels=("job",))
    with pytest.raises(EvaluationError, match="many-to-many matching not allowed"):
        vector_vector(evaluation(), BinaryOperation("+", matching), _JOBS, _PODS)


def test_a_comparison_with_a_scalar_filters_or_yields_zero_and_one() -> None:
    scalar = np.array([2.0, 2.0])
    kept = vector_scalar(evaluation(), BinaryOperation(">", position=0), _PODS, scalar, swapped=False)
    assert cells_of(kept) == {_A2: [3.0, None], _B1: [5.0, None]}
    numbers = vector_scalar(evaluation(), BinaryOperation("<", return_bool=True), _PODS, scalar, swapped=True)
    assert cells_of(numbers) == {_A1: [0.0, 0.0], _A2: [1.0, None], _B1: [1.0, 0.0]}


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("and", {_A1: [1.0, 2.0], _A2: [3.0, None]}),
        ("unless", {_B1: [5.0, 2.0]}),
        ("or", {_A1: [1.0, 2.0], _A2: [3.0, None], _B1: [5.0, 2.0]}),
    ],
)
def test_set_operators_depend_on_which_series_exist(op: str, expected: object) -> None:
    matching = Matching(Cardinality.MANY_TO_MANY, on=True, labels=("job",))
    assert cells_of(set_operation(op, matching, _PODS, _JOBS)) == expected
