"""What is kept in memory stays within its bounds, and what is read once only is not kept."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from lakerunner.model.labels import LabelSet
from lakerunner.query.scan.samples import opened
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.runtime.byte_lru import ByteLru
from tests.query.lake_of_series import LakeOfSeries


def test_the_least_recently_used_is_let_go() -> None:
    kept: ByteLru[str] = ByteLru(30)
    for key in ("a", "b", "c"):
        kept.put(key, key.upper(), 10)
    assert kept.get("a") == "A"
    kept.put("d", "D", 10)
    assert [kept.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    kept.put("e", "E", 31)
    assert kept.get("e") is None and kept.get("d") == "D"


def test_an_offer_is_taken_the_second_time() -> None:
    kept: ByteLru[str] = ByteLru(30)
    kept.offer("a", "A", 10)
    assert kept.get("a") is None
    kept.offer("a", "A", 10)
    assert kept.get("a") == "A"


def test_samples_that_are_read_again_and_again_are_read_from_memory(
    lake: LakeOfSeries, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = MemorySource()
    loaded.add(LabelSet.of({"__name__": "m", "of": uuid.uuid4().hex}), np.arange(10), np.arange(10.0))
    org = lake.write(loaded)
    reads: list[int] = []
    parquet_file = opened.pq.ParquetFile

    class Counting(parquet_file):  # type: ignore[misc, valid-type]
        def read_row_group(self, number: int, **options: object) -> object:
            reads.append(number)
            return super().read_row_group(number, **options)

    monkeypatch.setattr(opened.pq, "ParquetFile", Counting)
    matchers = [Matcher("__name__", MatchKind.EQUAL, "m")]
    for _ in range(4):
        batch = lake.lake.query(org).select(matchers, 2, 5)
        assert batch.values.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert len(reads) == 2


@pytest.mark.parametrize("histograms", [False, True])
def test_hours_with_the_same_series_share_their_table(
    lake: LakeOfSeries, monkeypatch: pytest.MonkeyPatch, histograms: bool
) -> None:
    """Not if there are histograms: which of them have bounds depends on the samples."""
    loaded, hours = MemorySource(), 5
    times = np.arange(hours) * 3_600_000
    given = [Histogram(schema=0, count=1.0, sum=1.0)] * hours if histograms else None
    loaded.add(LabelSet.of({"__name__": "m", "of": uuid.uuid4().hex}), times, np.arange(5.0), histograms=given)
    org = lake.write(loaded, temporality="cumulative" if histograms else None)
    tables: list[opened.SeriesTable] = []
    read_series = opened._read_series

    def noted(source: opened.Source) -> opened.SeriesTable:
        tables.append(read_series(source))
        return tables[-1]

    monkeypatch.setattr(opened, "_read_series", noted)
    matchers = [Matcher("__name__", MatchKind.EQUAL, "m")]
    batch = lake.lake.query(org).select(matchers, 0, hours * 3_600_000)
    assert batch.timestamps_ms.tolist() == times.tolist()
    assert len(tables) == (hours if histograms else 1)
