"""The meaning of metric queries, as the text files in `cases` say it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lakerunner.query.logql import ast
from lakerunner.query.logql.eval.evaluator import evaluate
from lakerunner.query.logql.parser import parse
from lakerunner.query.series.block import EvaluationError
from lakerunner.query.vectors.context import EngineOptions
from tests.query.logql.eval.memory_entries import MemoryEntries
from tests.query.logql.eval.script import Case, cases_of

_CASES = [case for path in sorted((Path(__file__).parent / "cases").glob("*.test")) for case in cases_of(path)]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    expr = parse(case.query)
    assert not isinstance(expr, ast.LogSelector)
    steps, source = np.array(case.steps_ns), MemoryEntries(case.entries)
    if case.fails:
        with pytest.raises(EvaluationError, match=case.fails):
            evaluate(expr, steps, source, lambda: None, EngineOptions(), ranged=case.ranged)
        return
    block = evaluate(expr, steps, source, lambda: None, EngineOptions(), ranged=case.ranged)
    rows = zip(block.labels, block.values.tolist(), block.valid.tolist(), strict=True)
    found = [
        (labels.pairs, tuple(value if there else None for value, there in zip(values, valid, strict=True)))
        for labels, values, valid in rows
    ]
    expected = case.expected
    if not case.ordered:
        found, expected = sorted(found, key=repr), sorted(expected, key=repr)
    assert [labels for labels, _ in found] == [labels for labels, _ in expected]
    for (_, got), (_, wanted) in zip(found, expected, strict=True):
        assert [cell is None for cell in got] == [cell is None for cell in wanted]
        assert [cell for cell in got if cell is not None] == pytest.approx(
            [cell for cell in wanted if cell is not None], rel=1e-12, nan_ok=True
        )
