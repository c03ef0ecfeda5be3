"""A part's value on its way from a worker: what arrives is what was sent, and no histogram is made of it."""

from __future__ import annotations

import numpy as np
import pytest

from lakerunner.model.labels import LabelSet
from lakerunner.query.series import block_arrow as block_wire
from lakerunner.query.series.block import Block, with_histograms
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram, ResetHint

STEPS = 5


def _block() -> Block:
    labels = [LabelSet.of({"job": job}) for job in ("floats", "mixed", "custom")]
    valid = np.zeros((3, STEPS), dtype=bool)
    valid[0] = True
    valid[1, 0] = True
    wide = Histogram(
        3, 7.0, -1.5, 0.001, 2.0, np.array([-4, 9]), np.array([1.0, 2.5]), np.array([0]), np.array([1.5]),
        hint=ResetHint.GAUGE,
    )  # fmt: skip
    custom = Histogram(
        CUSTOM_SCHEMA, 4.0, np.nan, pos_index=np.array([0, 2]), pos_count=np.array([1.0, 3.0]), bounds=(0.5, 1.0)
    )
    floats = Block(labels, np.arange(15.0).reshape(3, STEPS), valid, np.zeros(3, dtype=bool))
    return with_histograms(floats, [(1, 2, wide), (1, 4, custom), (2, 0, custom), (2, 1, wide)])


@pytest.mark.parametrize("cells_of_a_batch", [1 << 19, STEPS])
def test_what_arrives_is_what_was_sent(cells_of_a_batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_wire, "_BATCH_CELLS", cells_of_a_batch)
    sent = _block().rows([0, 2, 1])
    with monkeypatch.context() as patch:
        patch.setattr(HistogramColumn, "at", lambda column, row: pytest.fail("made a histogram"))
        got = block_wire.from_batches(list(block_wire.to_batches(sent)), STEPS)
    assert got.labels == sent.labels
    assert got.valid.tolist() == sent.valid.tolist()
    assert got.values[got.valid].tolist() == sent.values[sent.valid].tolist()
    assert got.hmask is not None and sent.hmask is not None
    assert got.hmask.tolist() == sent.hmask.tolist()
    for (*place, one), (*other_place, other) in zip(got.histogram_cells(), sent.histogram_cells(), strict=True):
        assert place == other_place
        assert one.equals(other)
        assert one.hint is other.hint


def test_masked_histograms_stay_behind() -> None:
    sent = _block()
    keep = np.ones(sent.shape, dtype=bool)
    keep[1, 2] = False
    got = block_wire.from_batches(list(block_wire.to_batches(sent.masked(keep))), STEPS)
    assert [(row, step) for row, step, _ in got.histogram_cells()] == [(1, 4), (2, 0), (2, 1)]
