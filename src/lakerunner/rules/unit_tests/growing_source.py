"""Series in memory that grow while rules are evaluated: the input of a unit test, shown up to now, and its results."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.go_format import general
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.rules.evaluation.vector import RuleError


@dataclass(slots=True)
class _Series:
    times_ms: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    #: Place of a sample -> its histogram.
    histograms: dict[int, Histogram] = field(default_factory=dict)


@dataclass(slots=True)
class GrowingSource:
    """Implements `SeriesSource`. Samples after `until_ms` are not there yet."""

    until_ms: int = 0
    _series: dict[LabelSet, _Series] = field(default_factory=dict)
    _by_name: dict[str, list[LabelSet]] = field(default_factory=dict)

    def add(self, labels: LabelSet, time_ms: int, value: float, histogram: Histogram | None = None) -> None:
        """Add a sample after all others of its series. A second one at the same time must be equal."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series()
            self._by_name.setdefault(labels.get(METRIC_NAME), []).append(labels)
        place = bisect_left(series.times_ms, time_ms)
        if place < len(series.times_ms) and series.times_ms[place] == time_ms:
            self._refuse_other(series, place, value, histogram)
            return
        if place < len(series.times_ms) and series.times_ms[place] <= self.until_ms:
            raise RuleError("out of order sample")
        series.times_ms.insert(place, time_ms)
        series.values.insert(place, value)
        if place < len(series.times_ms) - 1 and series.histograms:
            series.histograms = {at + (at >= place): each for at, each in series.histograms.items()}
        if histogram is not None:
            series.histograms[place] = histogram

    @staticmethod
    def _refuse_other(series: _Series, place: int, value: float, histogram: Histogram | None) -> None:
        known = series.values[place]
        same = known == value or (math.isnan(known) and math.isnan(value))
        if not same or (histogram is None) != (place not in series.histograms):
            raise RuleError(
                f"duplicate sample for timestamp {series.times_ms[place]}; overrides not allowed: "
                f"existing {general(known)}, new value {general(value)}"
            )

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        end_ms = min(end_ms, self.until_ms)
        parts: list[tuple[LabelSet, _Series, int, int]] = []
        for labels in self._candidates(matchers):
            if all(matcher.matches(labels.get(matcher.name)) for matcher in matchers):
                series = self._series[labels]
                begin, end = bisect_left(series.times_ms, start_ms), bisect_right(series.times_ms, end_ms)
                if end > begin:
                    parts.append((labels, series, begin, end))
        if not parts:
            return SeriesBatch.empty()
        sizes = [end - begin for _, _, begin, end in parts]
        times = np.array([each for _, series, b, e in parts for each in series.times_ms[b:e]], np.int64)
        return SeriesBatch(
            labels=[labels for labels, _, _, _ in parts],
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            timestamps_ms=times,
            values=np.array([each for _, series, b, e in parts for each in series.values[b:e]], np.float64),
            start_timestamps_ms=np.zeros(len(times), np.int64),
            histograms=_column(parts),
        )

    def _candidates(self, matchers: Sequence[Matcher]) -> Sequence[LabelSet]:
        for matcher in matchers:
            if matcher.name == METRIC_NAME and matcher.kind is MatchKind.EQUAL:
                return self._by_name.get(matcher.value, [])
        return list(self._series)


def _column(parts: Sequence[tuple[LabelSet, _Series, int, int]]) -> HistogramColumn | None:
    if not any(series.histograms for _, series, _, _ in parts):
        return None
    return HistogramColumn.of([series.histograms.get(at) for _, series, b, e in parts for at in range(b, e)])
