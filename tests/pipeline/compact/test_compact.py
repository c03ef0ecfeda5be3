"""Compaction through the real index and bucket: rows stay, segments become few."""

from __future__ import annotations

from lakerunner.model.signals import SIGNALS
from tests.pipeline.compact.small_lake import compact, ingest
from tests.pipeline.lake import Lake, identities, otlp


def test_rows_of_all_inputs_are_in_the_output(lake: Lake) -> None:
    for signal in SIGNALS:
        for seed in range(3):
            ingest(lake, lake.put(signal, otlp(signal, 200, seed=seed + 1)))
        before = lake.rows(signal)
        inputs = lake.segments(signal)
        compact(lake, inputs)
        (made,) = lake.segments(signal)
        assert made.level == 1
        assert made.row_count == before.num_rows == sum(each.row_count for each in inputs)
        assert identities(lake.rows(signal), signal) == identities(before, signal)
