"""Answers kept in memory: given again while the segments that they came from are the live ones."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.query.lake_port import ScanStats
from lakerunner.query.promql.results import MatrixResult, QueryResult, StepMatrix, VectorResult

#: What a label set, its strings and the arrays' headers take, roughly.
_SERIES_BYTES = 700
_SAMPLE_BYTES = 16
_HISTOGRAM_BYTES = 1_500


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """Two queries with the same key have the same answer, as long as the fingerprint is the same."""

    org_id: uuid.UUID
    #: The canonical text: blanks and number spellings do not matter.
    text: str
    start_ms: int
    end_ms: int
    step_ms: int
    lookback_ms: int


@dataclass(frozen=True, slots=True)
class Kept:
    result: QueryResult
    stats: ScanStats
    fingerprint: str
    kept_at_s: float
    size_bytes: int


class AnswerCache:
    """The least recently used answers go first. Safe to share between threads."""

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[AnswerKey, Kept] = OrderedDict()
        self._bytes = 0

    def get(self, key: AnswerKey, fingerprint: str) -> Kept | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            if kept.fingerprint != fingerprint or self._clock() - kept.kept_at_s > self._ttl_s:
                self._drop(key)
                return None
            self._kept.move_to_end(key)
            return kept

    def put(self, key: AnswerKey, fingerprint: str, result: QueryResult, stats: ScanStats) -> None:
        size_bytes = _size_bytes(result)
        # One answer must not empty the cache of all others.
        if size_bytes > self._max_bytes // 8:
            return
        with self._lock:
            self._drop(key)
            self._kept[key] = Kept(result, stats, fingerprint, self._clock(), size_bytes)
            self._bytes += size_bytes
            while self._bytes > self._max_bytes:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: AnswerKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size_bytes

    def __len__(self) -> int:
        return len(self._kept)


def _size_bytes(result: QueryResult) -> int:
    match result.value:
        case MatrixResult(steps=StepMatrix() as steps):
            # As it is kept, whole: cells that are empty take their place too.
            held = 0 if steps.hmask is None else int(steps.hmask.sum())
            arrays = steps.values.nbytes + steps.valid.nbytes + steps.times_ms.nbytes
            return len(steps.labels) * _SERIES_BYTES + arrays + held * _HISTOGRAM_BYTES
        case MatrixResult(series=series):
            histograms = sum(len(one.histograms) for one in series)
            samples = sum(len(one.timestamps_ms) for one in series)
            return len(series) * _SERIES_BYTES + samples * _SAMPLE_BYTES + histograms * _HISTOGRAM_BYTES
        case VectorResult(labels=labels, histograms=histograms_or_none):
            histograms = sum(one is not None for one in histograms_or_none)
            return len(labels) * _SERIES_BYTES + histograms * _HISTOGRAM_BYTES
        case _:
            return _SERIES_BYTES
