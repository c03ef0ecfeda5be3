"""Series held in memory: for tests, for small data, and as the reference that other sources are compared with."""

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


@dataclass(slots=True)
class MemorySeries:
    labels: LabelSet
    timestamps_ms: np.ndarray
    values: np.ndarray
    start_timestamps_ms: np.ndarray
    #: Beside the values: the histogram of a sample, or None for a float.
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
        """Add samples. Times must ascend; samples at times that the series has already are refused."""
        times = np.asarray(timestamps_ms, dtype=np.int64)
        numbers = np.asarray(values, dtype=np.float64)
        starts = np.zeros(len(times), dtype=np.int64) if start_timestamps_ms is None else start_timestamps_ms
        series = MemorySeries(
            labels, times, numbers, np.asarray(starts, dtype=np.int64), None if histograms is None else list(histograms)
        )
        known = self._series.get(labels)
        if known is None:
            self._by_name.setdefault(labels.get(METRIC_NAME), []).append(labels)
        else:
            series = _joined(known, series)
        if (np.diff(series.timestamps_ms) <= 0).any():
            raise BadInput(f"cannot add samples to {labels}: their times do not ascend")
        self._series[labels] = series

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesBatch:
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


def _joined(known: MemorySeries, more: MemorySeries) -> MemorySeries:
    histograms = None
    if known.histograms is not None or more.histograms is not None:
        histograms = [
            *(known.histograms or [None] * len(known.values)),
            *(more.histograms or [None] * len(more.values)),
        ]
    order = np.argsort(np.concatenate([known.timestamps_ms, more.timestamps_ms]), kind="stable")
    return MemorySeries(
        known.labels,
        np.concatenate([known.timestamps_ms, more.timestamps_ms])[order],
        np.concatenate([known.values, more.values])[order],
        np.concatenate([known.start_timestamps_ms, more.start_timestamps_ms])[order],
        None if histograms is None else [histograms[i] for i in order.tolist()],
    )
