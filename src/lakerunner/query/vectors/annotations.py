"""Warnings and infos: what a reader of the result should know about how it came to be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from lakerunner.query.series.go_format import general
from lakerunner.query.syntax.errors import position_of
from lakerunner.query.syntax.strings import quote

_PLAIN_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_MONOTONICITY = (
    "input to histogram_quantile needed to be fixed for monotonicity "
    "(see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
)


def plain_or_quoted(name: str) -> str:
    """A label's name, in quotes where it could not be written without."""
    return name if _PLAIN_LABEL.fullmatch(name) else quote(name)


def _named(message: str, metric: str) -> str:
    return f"{message} for metric name {quote(metric)}" if metric else message


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Annotations:
    """Collects messages, each once: with the position of the expression that gave it last, as Prometheus does."""

    text: str
    _warnings: dict[str, int] = field(default_factory=dict)
    _infos: dict[str, int] = field(default_factory=dict)
    #: How often a message was given; only some say it.
    _counts: dict[str, int] = field(default_factory=dict)
    #: message -> position, first and last bucket, largest difference, samples, first and last time.
    _forced: dict[str, tuple[int, float, float, float, int, int, int]] = field(default_factory=dict)

    def absorb(self, later: Annotations) -> None:
        """Take over what an evaluation of later steps has said."""
        for message, count in later._counts.items():
            self._counts[message] = self._counts.get(message, 0) + count
        # What is counted stays where it was first met.
        first = {message: at for message, at in self._warnings.items() if message in later._counts}
        self._warnings |= later._warnings | first
        self._infos |= later._infos
        for message, (position, low, high, worst, samples, start_ms, end_ms) in later._forced.items():
            known = self._forced.get(message)
            if known is not None:
                low, high, worst = min(low, known[1]), max(high, known[2]), max(worst, known[3])
                samples, start_ms, end_ms = samples + known[4], min(start_ms, known[5]), max(end_ms, known[6])
            self._forced[message] = (position, low, high, worst, samples, start_ms, end_ms)

    def to_json(self) -> dict[str, Any]:
        # Bounds of buckets may be infinite, which JSON cannot say.
        forced = {message: [*map(repr, about)] for message, about in self._forced.items()}
        return {"warnings": self._warnings, "infos": self._infos, "counts": self._counts, "forced": forced}

    @classmethod
    def from_json(cls, text: str, document: Mapping[str, Any]) -> Annotations:
        forced = {
            message: (int(at), float(first), float(last), float(worst), int(samples), int(start_ms), int(end_ms))
            for message, (at, first, last, worst, samples, start_ms, end_ms) in document["forced"].items()
        }
        return cls(text, dict(document["warnings"]), dict(document["infos"]), dict(document["counts"]), forced)

    def warn(self, message: str, position: int) -> None:
        self._warnings[message] = position

    def info(self, message: str, position: int) -> None:
        self._infos[message] = position

    def _placed(self, kind: str, message: str, position: int) -> str:
        """With its place, where columns are bytes."""
        line, column = position_of(self.text, position)
        column += len(self.text[position - column + 1 : position].encode(errors="surrogateescape")) - (column - 1)
        return f"{kind}: {message} ({line}:{column})"

    def warnings(self) -> list[str]:
        return sorted(
            self._placed("PromQL warning", self._counted(message), at) for message, at in self._warnings.items()
        )

    def _counted(self, message: str) -> str:
        count = self._counts.get(message, 1)
        return message if count == 1 else f"{message} ({count} occurrences)"

    def infos(self) -> list[str]:
        infos = [self._placed("PromQL info", message, at) for message, at in self._infos.items()]
        return sorted([*infos, *self._forced_texts()])

    # -- the messages ------------------------------------------------------------------------------------------

    def mixed_samples(self, metric: str, position: int) -> None:
        self.warn(f"encountered a mix of histograms and floats for metric name {quote(metric)}", position)

    def mixed_aggregation(self, position: int) -> None:
        self.warn("encountered a mix of histograms and floats for aggregation", position)

    def mixed_schemas(self, metric: str, position: int) -> None:
        message = "vector contains a mix of histograms with exponential and custom buckets schemas for metric name"
        self.warn(f"{message} {quote(metric)}", position)

    def mixed_classic_native(self, metric: str, position: int) -> None:
        self.warn(_named("vector contains a mix of classic and native histograms", metric), position)

    def bad_bucket_label(self, metric: str, value: str, position: int) -> None:
        message = f'bucket label "le" is missing or has a malformed value of {quote(value)}'
        self.warn(_named(message, metric), position)

    def not_a_counter(self, metric: str, position: int) -> None:
        self.warn(f"this native histogram metric is not a counter: {quote(metric)}", position)

    def not_a_gauge(self, metric: str, position: int) -> None:
        self.warn(f"this native histogram metric is not a gauge: {quote(metric)}", position)

    def hint_collision(self, operation: str, position: int) -> None:
        self.warn(f"conflicting counter resets during histogram {operation}", position)

    def start_overlap(self, metric: str, position: int, windows: int = 1) -> None:
        message = f"sample has start time that overlaps with previous sample timestamp for metric {quote(metric)}"
        # What is counted stays where it was first met.
        self.warn(message, self._warnings.get(message, position))
        self._counts[message] = self._counts.get(message, 0) + windows

    def incompatible_layout(self, op: str, position: int) -> None:
        self.warn(f"incompatible bucket layout encountered for binary operator {op}", position)

    def invalid_quantile(self, value: float, position: int) -> None:
        self.warn(f"quantile value should be between 0 and 1, got {general(value)}", position)

    def invalid_ratio(self, value: float, capped: float, position: int) -> None:
        shown = f"got {general(value)}, capping to {general(capped)}"
        self.warn(f"ratio value should be between -1 and 1, {shown}", position)

    def sort_in_range(self, position: int) -> None:
        self.warn("sort is ineffective for range queries since results are always ordered by labels", position)

    def bounds_reconciled(self, operation: str, position: int) -> None:
        self.info(f"mismatched custom buckets were reconciled during {operation}", position)

    def possible_non_counter(self, metric: str, position: int) -> None:
        message = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:"
        self.info(f"{message} {quote(metric)}", position)

    def possible_non_counter_type(self, metric: str, kind: str, position: int) -> None:
        message = 'metric might not be a counter, __type__ label is not set to "counter" or "histogram"'
        self.info(f"{message}, got {quote(kind)}: {quote(metric)}", position)

    def incompatible_types(self, left: str, op: str, right: str, position: int) -> None:
        shown = f"{quote(op)}: {left} {op} {right}"
        self.info(f"incompatible sample types encountered for binary operator {shown}", position)

    def histogram_ignored(self, aggregation: str, position: int) -> None:
        self.info(f"ignored histogram in {aggregation} aggregation", position)

    def histograms_ignored_in_range(self, metric: str, position: int) -> None:
        message = "ignored histograms in a range containing both floats and histograms for metric name"
        self.info(f"{message} {quote(metric)}", position)

    def quantile_is_nan(self, metric: str, position: int) -> None:
        self.info(_named("input to histogram_quantile has NaN observations, result is NaN", metric), position)

    def quantile_is_skewed(self, metric: str, position: int) -> None:
        self.info(_named("input to histogram_quantile has NaN observations, result is skewed higher", metric), position)

    def fraction_without_nan(self, metric: str, position: int) -> None:
        message = "input to histogram_fraction has NaN observations, which are excluded from all fractions"
        self.info(_named(message, metric), position)

    def forced_monotonicity(
        self, metric: str, position: int, time_ms: int, lowest: float, highest: float, difference: float
    ) -> None:
        """One message for all samples concerned, saying how bad it was."""
        message = _named(_MONOTONICITY, metric)
        position, first, last, worst, samples, start_ms, end_ms = self._forced.get(
            message, (position, math.inf, -math.inf, 0.0, 0, time_ms, time_ms)
        )
        self._forced[message] = (
            position,
            min(first, lowest),
            max(last, highest),
            max(worst, difference),
            samples + 1,
            min(start_ms, time_ms),
            max(end_ms, time_ms),
        )

    def _forced_texts(self) -> list[str]:
        out = []
        for message, (position, first, last, worst, samples, start_ms, end_ms) in self._forced.items():
            buckets = f"from buckets {general(first)} to {general(last)}"
            extent = f"with a max diff of {worst:.2g}, over {samples} samples from {_utc(start_ms)} to {_utc(end_ms)}"
            out.append(self._placed("PromQL info", f"{message}, {buckets}, {extent}", position))
        return out


class LastOfStep(Annotations):
    """Of the messages of one operator at one step only the last is kept: that is all that Prometheus remembers.

    `at(step, place)` says which pair of samples the messages to come are about; the pair of the highest place is last.
    """

    def __init__(self, target: Annotations) -> None:
        super().__init__(target.text)
        self._target = target
        self._last: dict[int, tuple[tuple[int, int], Callable[[], None]]] = {}
        self._step, self._place = 0, (0, 0)

    def at(self, step: int, place: tuple[int, int]) -> LastOfStep:
        self._step, self._place = step, place
        return self

    def warn(self, message: str, position: int) -> None:
        self._keep(partial(self._target.warn, message, position))

    def info(self, message: str, position: int) -> None:
        self._keep(partial(self._target.info, message, position))

    def _keep(self, say: Callable[[], None]) -> None:
        known = self._last.get(self._step)
        if known is None or known[0] <= self._place:
            self._last[self._step] = (self._place, say)

    def flush(self) -> None:
        for step in sorted(self._last):
            self._last[step][1]()
        self._last.clear()
