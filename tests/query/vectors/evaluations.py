"""An evaluation and blocks for tests of vector operations, without any query language."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.block import Block
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.context import EngineOptions, Evaluation


def evaluation() -> Evaluation:
    return Evaluation(MemorySource(), QueryTimes(0, 60_000, 60_000), EngineOptions(), Annotations("query", "Test"))


def block(rows: dict[tuple[tuple[str, str], ...], Sequence[float | None]]) -> Block:
    """One row per series, one cell per step; None is an empty cell."""
    cells = [[0.0 if value is None else value for value in values] for values in rows.values()]
    valid = [[value is not None for value in values] for values in rows.values()]
    labels = [LabelSet.of(dict(pairs)) for pairs in rows]
    return Block(labels, np.array(cells), np.array(valid), np.zeros(len(labels), dtype=bool))


def cells_of(found: Block) -> dict[tuple[tuple[str, str], ...], list[float | None]]:
    """The inverse of `block`, for results."""
    return {
        labels.pairs: [value if there else None for value, there in zip(values, valid, strict=True)]
        for labels, values, valid in zip(found.labels, found.values.tolist(), found.valid.tolist(), strict=True)
    }
