"""rate, increase, delta, irate and idelta of native histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakerunner.model.samples import is_start_reset
from lakerunner.query.series.histograms.histogram import Histogram, ResetHint
from lakerunner.query.series.histograms.math import IncompatibleSchemas, Sum, add, is_reset, subtract, to_schema
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms.smoothed import between

if TYPE_CHECKING:
    from lakerunner.query.vectors.histograms.ranges import Window

_GAUGE = ResetHint.GAUGE


def _as_gauge(histogram: Histogram) -> Histogram:
    return histogram.compact().with_hint(_GAUGE)


class _Rate:
    """The computation for one window, with its annotations."""

    def __init__(self, evaluation: Evaluation, window: Window) -> None:
        self.notes = evaluation.notes
        self.window = window
        self.hists = window.hists
        points = window.samples.hist_points
        self.times = points.ts[window.hist_begin : window.hist_end].tolist()
        self.starts = points.starts[window.hist_begin : window.hist_end].tolist()
        self.counter = window.function not in ("delta", "idelta")

    def start_reset(self, i: int) -> bool:
        """Whether the start timestamps show a reset between samples i and i + 1."""
        return bool(is_start_reset(self.starts[i], self.times[i], self.starts[i + 1], self.times[i + 1]))

    def note(self, result: Sum, operation: str) -> Histogram:
        if result.bounds_reconciled:
            self.notes.bounds_reconciled(operation, self.window.position)
        return result.value

    def add(self, left: Histogram, right: Histogram) -> Histogram:
        return self.note(add(left, right), "addition")

    def subtract(self, left: Histogram, right: Histogram) -> Histogram:
        return self.note(subtract(left, right), "subtraction")

    def mixed_schemas(self) -> None:
        self.notes.mixed_schemas(self.window.name, self.window.position)

    def check_kinds(self, first: Histogram, last: Histogram) -> None:
        if self.counter:
            if any(histogram.hint is _GAUGE for histogram in self.hists):
                self.notes.not_a_counter(self.window.name, self.window.position)
        elif first.hint is not _GAUGE or last.hint is not _GAUGE:
            self.notes.not_a_gauge(self.window.name, self.window.position)

    def increase(self) -> Histogram | None:
        """The last minus the first histogram, plus what resets in between removed."""
        first, last = self.hists[0], self.hists[-1]
        if self.counter and (self.start_reset(0) or is_reset(self.hists[1], first)):
            # The first sample, before a reset, does not count, nor does its bucket layout.
            second = self.hists[1]
            first = Histogram(schema=second.schema, bounds=second.bounds)
        relevant = [first, last, *(self.hists[1:-1] if self.counter else ())]
        if any(histogram.custom != first.custom for histogram in relevant):
            self._kinds_before_failure()
            self.mixed_schemas()
            return None
        self.check_kinds(self.hists[0], last)
        out = to_schema(last, min(histogram.schema for histogram in relevant))
        out = self.subtract(out, first)
        if self.counter:
            out = self._with_resets(out, first)
        return _as_gauge(out)

    def _kinds_before_failure(self) -> None:
        if self.counter and _GAUGE in (self.hists[0].hint, self.hists[-1].hint):
            self.notes.not_a_counter(self.window.name, self.window.position)

    def _with_resets(self, out: Histogram, first: Histogram) -> Histogram:
        previous = first
        overlapping = False
        for i, current in enumerate(self.hists[1:]):
            start, before = self.starts[i + 1], self.starts[i]
            overlapping |= start != 0 and start < self.times[i] and start != before
            if self.start_reset(i) or is_reset(current, previous):
                out = self.add(out, previous)
            previous = current
        if overlapping:
            self.notes.start_overlap(self.window.name, self.window.position)
        return out


def extrapolated_rate(evaluation: Evaluation, window: Window) -> Histogram | None:
    rate = _Rate(evaluation, window)
    try:
        return _extrapolated(rate, window)
    except IncompatibleSchemas:
        rate.mixed_schemas()
        return None


def _extrapolated(rate: _Rate, window: Window) -> Histogram | None:
    hists, times, starts = rate.hists, rate.times, rate.starts
    result: Histogram | None = None
    if len(hists) > 1:
        result = rate.increase()
        if result is None:
            return None
    to_start = (times[0] - window.after_ms) / 1000
    to_end = (window.until_ms - times[-1]) / 1000
    sampled = (times[-1] - times[0]) / 1000
    between_samples = sampled / (window.hist_count - 1) if len(hists) > 1 else 0.0
    threshold = between_samples * 1.1
    if rate.counter and starts[0] != 0 and window.after_ms < starts[0] < times[0]:
        # The counter was zero at its known start: nothing is extrapolated to the left.
        to_start = 0.0
        sampled = (times[-1] - starts[0]) / 1000
        result = hists[0] if result is None else rate.add(result, hists[0])
    elif result is None:
        return None
    else:
        if to_start >= threshold:
            to_start = between_samples / 2
        if rate.counter and result.count > 0 and hists[0].count >= 0:
            to_start = min(to_start, sampled * (hists[0].count / result.count))
    if to_end >= threshold:
        to_end = between_samples / 2
    factor = (sampled + to_start + to_end) / sampled if sampled else 1.0
    if window.function == "rate":
        factor /= window.vector.range_ms / 1000
    # Empty buckets depend on how samples were stored: quantiles must not depend on them.
    return result.scaled(factor).compact()


def instant_rate(evaluation: Evaluation, window: Window) -> float | Histogram | None:
    """irate and idelta: from the last two samples, floats or histograms."""
    samples = window.merged()[-2:]
    if len(samples) < 2:
        return None
    (first_ms, first_start, first), (last_ms, last_start, last) = samples
    notes, position = evaluation.notes, window.position
    counter = window.function == "irate"
    if isinstance(first, float) and isinstance(last, float):
        return window.float_result
    if isinstance(first, float) or isinstance(last, float):
        notes.mixed_samples(window.name, position)
        return None
    if counter and _GAUGE in (first.hint, last.hint):
        notes.not_a_counter(window.name, position)
    if not counter and not first.hint is last.hint is _GAUGE:
        notes.not_a_gauge(window.name, position)
    result = last
    if not counter or not (is_start_reset(first_start, first_ms, last_start, last_ms) or is_reset(last, first)):
        try:
            difference = subtract(last, first)
        except IncompatibleSchemas:
            notes.mixed_schemas(window.name, position)
            return None
        if difference.bounds_reconciled:
            notes.bounds_reconciled("subtraction", position)
        result = difference.value
    result = _as_gauge(result)
    return result.divided((last_ms - first_ms) / 1000) if counter else result


def extended_rate(evaluation: Evaluation, window: Window) -> Histogram | None:
    rate = _Rate(evaluation, window)
    try:
        return _extended(rate, window)
    except IncompatibleSchemas:
        rate.mixed_schemas()
        return None


def _extended(rate: _Rate, window: Window) -> Histogram | None:
    """Anchored: from the sample at or before the window. Smoothed: between values interpolated at both edges."""
    hists, times, smoothed = rate.hists, rate.times, window.vector.smoothed
    after_ms, until_ms = window.after_ms, window.until_ms
    last = len(hists) - 1
    first = max(0, next((i for i in range(last) if times[i] > after_ms), last) - 1)
    if smoothed:
        last = next((i for i in range(last) if times[i] >= until_ms), last)
    if times[last] <= after_ms or (smoothed and times[first] > until_ms):
        return None
    inside = hists[first : last + 1]
    if any(histogram.custom != inside[0].custom for histogram in inside):
        rate.mixed_schemas()
        return None
    if rate.counter and any(histogram.hint is _GAUGE for histogram in inside):
        rate.notes.not_a_counter(window.name, window.position)
    left, right = hists[first], hists[last]
    if smoothed and times[first] < after_ms:
        left = _interpolated(rate, first, after_ms)
    if smoothed and last > 0 and times[last] > until_ms:
        right = _interpolated(rate, last - 1, until_ms)
    if not rate.counter and not left.hint is right.hint is _GAUGE:
        rate.notes.not_a_gauge(window.name, window.position)
    result = rate.subtract(right, left)
    if rate.counter:
        result = _corrected(rate, result, first, last, left, right, smoothed and times[first] < after_ms)
    if window.function == "rate":
        result = result.divided(window.vector.range_ms / 1000)
    return _as_gauge(result)


def _interpolated(rate: _Rate, i: int, at_ms: int) -> Histogram:
    first, second = rate.hists[i], rate.hists[i + 1]
    histogram, sums = between(first, rate.times[i], second, rate.times[i + 1], at_ms, rate.counter)
    for index, sum_ in enumerate(sums):
        rate.note(sum_, "subtraction" if index == 0 else "addition")
    return histogram


def _corrected(
    rate: _Rate, result: Histogram, first: int, last: int, left: Histogram, right: Histogram, interpolated: bool
) -> Histogram:
    """Add what resets between the edges removed, except a reset that the left edge was interpolated across."""
    begin, previous = first + 1, left
    if interpolated and is_reset(rate.hists[first + 1], rate.hists[first]):
        previous = rate.hists[first + 1]
        begin += 1
    if begin > last:
        return result
    for histogram in [*rate.hists[begin:last], right]:
        if is_reset(histogram, previous):
            result = rate.add(result, previous)
        previous = histogram
    return result
