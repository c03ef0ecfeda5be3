"""Series in memory: for tests, for small data, and as the reference for other sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.reading import RAW, Reading


@dataclass(slots=True)
class MemorySeries:
    labels: LabelSet
    timestamps_ms: np.ndarray
    values: np.ndarray
    start_timestamps_ms: np.ndarray
    #: One per value: its histogram, or None where the sample is a float.
    histograms: list[Histogram | None] | None = None


@dataclass(slots=True)
class MemorySource:
    """Implements `SeriesSource` over a dictionary of series."""

    _series: dict[LabelSet, MemorySeries] = field(default_factory=dict)
    _by_name: dict[str, list[LabelSet]] = field(default_factory=dict)

    def add(
        self,
        labels: LabelSet,
        timestamps_ms: Sequence[int] | np.ndarray,
        values: Sequence[float] | np.ndarray,
        start_timestamps_ms: Sequence[int] | np.ndarray | None = None,
        histograms: Sequence[Histogram | None] | None = None,
    ) -> None:
        """Add samples. Times must ascend; a second sample at the same time is refused."""
        times = np.asarray(timestamps_ms, dtype=np.int64)
        numbers = np.asarray(values, dtype=np.float64)
        starts = np.zeros(len(times), dtype=np.int64) if start_timestamps_ms is None else start_timestamps_ms
        series = MemorySeries(
            labels, times, numbers, np.asarray(starts, dtype=np.int64), None if histograms is None else list(histograms)
        )
        existing = self._series.get(labels)
        if existing is None:
            self._by_name.setdefault(labels.get(METRIC_NAME), []).append(labels)
        else:
            series = _joined(existing, series)
        if (np.diff(series.timestamps_ms) <= 0).any():
            raise BadInput(f"cannot add samples to {labels}: their times do not ascend")
        self._series[labels] = series

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        chosen = [self._series[labels] for labels in self._candidates(matchers) if _accepts(matchers, labels)]
        parts: list[tuple[MemorySeries, int, int]] = []
        for series in chosen:
            begin = int(series.timestamps_ms.searchsorted(start_ms, side="left"))
            end = int(series.timestamps_ms.searchsorted(end_ms, side="right"))
            if end > begin:
                parts.append((series, begin, end))
        if not parts:
            return SeriesBatch.empty()
        return SeriesBatch(
            labels=[series.labels for series, _, _ in parts],
            offsets=np.concatenate([[0], np.cumsum([end - begin for _, begin, end in parts])]).astype(np.int64),
            timestamps_ms=np.concatenate([series.timestamps_ms[b:e] for series, b, e in parts]),
            values=np.concatenate([series.values[b:e] for series, b, e in parts]),
            start_timestamps_ms=np.concatenate([series.start_timestamps_ms[b:e] for series, b, e in parts]),
            histograms=_column(parts),
        )

    def _candidates(self, matchers: Sequence[Matcher]) -> Sequence[LabelSet]:
        for matcher in matchers:
            if matcher.name == METRIC_NAME and matcher.kind is MatchKind.EQUAL:
                return self._by_name.get(matcher.value, [])
        return list(self._series)


def _accepts(matchers: Sequence[Matcher], labels: LabelSet) -> bool:
    return all(matcher.matches(labels.get(matcher.name)) for matcher in matchers)


def _column(parts: list[tuple[MemorySeries, int, int]]) -> HistogramColumn | None:
    if all(series.histograms is None for series, _, _ in parts):
        return None
    samples: list[Histogram | None] = []
    for series, begin, end in parts:
        samples += [None] * (end - begin) if series.histograms is None else series.histograms[begin:end]
    return HistogramColumn.of(samples)


def _joined(left: MemorySeries, right: MemorySeries) -> MemorySeries:
    histograms = None
    if left.histograms is not None or right.histograms is not None:
        histograms = [
            *(left.histograms or [None] * len(left.values)),
            *(right.histograms or [None] * len(right.values)),
        ]
    order = np.argsort(np.concatenate([left.timestamps_ms, right.timestamps_ms]), kind="stable")
    return MemorySeries(
        left.labels,
        np.concatenate([left.timestamps_ms, right.timestamps_ms])[order],
        np.concatenate([left.values, right.values])[order],
        np.concatenate([left.start_timestamps_ms, right.start_timestamps_ms])[order],
        None if histograms is None else [histograms[i] for i in order.tolist()],
    )
