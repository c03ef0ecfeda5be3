"""Annotations: the warnings and infos that accompany a result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.go_format import general
from lakerunner.query.syntax.errors import position_of
from lakerunner.query.syntax.strings import quote, quote_unless_plain

_MONOTONICITY = (
    "input to histogram_quantile needed to be fixed for monotonicity "
    "(see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
)


def format_labels(labels: LabelSet) -> str:
    """Labels as messages show them, the metric name among the others."""
    return "{" + ", ".join(f"{quote_unless_plain(name)}={quote(value)}" for name, value in labels) + "}"


def _named(message: str, metric: str) -> str:
    return f"{message} for metric name {quote(metric)}" if metric else message


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Annotations:
    """Collects messages, each once. Its position is that of the expression that emitted it last, as in Prometheus."""

    #: The query, in which positions are offsets.
    text: str
    #: The query language, which users see before every message.
    language: str
    _warnings: dict[str, int] = field(default_factory=dict)
    _infos: dict[str, int] = field(default_factory=dict)
    #: How often a message was emitted, for those that report it.
    _counts: dict[str, int] = field(default_factory=dict)
    #: Per message: position, first and last bucket, largest difference, samples, first and last time.
    _forced: dict[str, tuple[int, float, float, float, int, int, int]] = field(default_factory=dict)

    def absorb(self, later: Annotations) -> None:
        """Add the annotations of an evaluation of later steps."""
        for message, count in later._counts.items():
            self._counts[message] = self._counts.get(message, 0) + count
        # Counted messages keep their first position.
        first = {message: at for message, at in self._warnings.items() if message in later._counts}
        self._warnings |= later._warnings | first
        self._infos |= later._infos
        for message, (position, low, high, worst, samples, start_ms, end_ms) in later._forced.items():
            earlier = self._forced.get(message)
            if earlier is not None:
                low, high, worst = min(low, earlier[1]), max(high, earlier[2]), max(worst, earlier[3])
                samples, start_ms, end_ms = samples + earlier[4], min(start_ms, earlier[5]), max(end_ms, earlier[6])
            self._forced[message] = (position, low, high, worst, samples, start_ms, end_ms)

    def to_json(self) -> dict[str, Any]:
        # As text: bucket bounds may be infinite, which JSON cannot express.
        forced = {message: [*map(repr, details)] for message, details in self._forced.items()}
        return {
            "language": self.language,
            "warnings": self._warnings,
            "infos": self._infos,
            "counts": self._counts,
            "forced": forced,
        }

    @classmethod
    def from_json(cls, text: str, document: Mapping[str, Any]) -> Annotations:
        forced = {
            message: (int(at), float(first), float(last), float(worst), int(samples), int(start_ms), int(end_ms))
            for message, (at, first, last, worst, samples, start_ms, end_ms) in document["forced"].items()
        }
        return cls(
            text,
            document["language"],
            dict(document["warnings"]),
            dict(document["infos"]),
            dict(document["counts"]),
            forced,
        )

    def warn(self, message: str, position: int) -> None:
        self._warnings[message] = position

    def info(self, message: str, position: int) -> None:
        self._infos[message] = position

    def _placed(self, kind: str, message: str, position: int) -> str:
        """The message with its line and column. Columns count bytes, as in Prometheus."""
        line, column = position_of(self.text, position)
        column += len(self.text[position - column + 1 : position].encode(errors="surrogateescape")) - (column - 1)
        return f"{self.language} {kind}: {message} ({line}:{column})"

    def warnings(self) -> list[str]:
        return sorted(self._placed("warning", self._counted(message), at) for message, at in self._warnings.items())

    def _counted(self, message: str) -> str:
        count = self._counts.get(message, 1)
        return message if count == 1 else f"{message} ({count} occurrences)"

    def infos(self) -> list[str]:
        infos = [self._placed("info", message, at) for message, at in self._infos.items()]
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
        # Counted messages keep their first position.
        self.warn(message, self._warnings.get(message, position))
        self._counts[message] = self._counts.get(message, 0) + windows

    def incompatible_layout(self, op: str, position: int) -> None:
        self.warn(f"incompatible bucket layout encountered for binary operator {op}", position)

    def invalid_quantile(self, value: float, position: int) -> None:
        self.warn(f"quantile value should be between 0 and 1, got {general(value)}", position)

    def approximate_quantile(self, position: int) -> None:
        self.warn(
            "quantile_over_time was computed from sketches of rollup tiers, within 1%, as the query allows", position
        )

    def approximate_by_rule(self, within: str, position: int) -> None:
        self.warn(f"{within}, as the query allows", position)

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
        """Emit one message for all affected samples, with the worst case."""
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
            out.append(self._placed("info", f"{message}, {buckets}, {extent}", position))
        return out


class LastOfStep(Annotations):
    """Keeps only the last message of one operator at each step, as Prometheus does.

    `at(step, order)` says which pair of samples the next messages are about; the pair with the highest order is last.
    """

    def __init__(self, target: Annotations) -> None:
        super().__init__(target.text, target.language)
        self._target = target
        self._last: dict[int, tuple[tuple[int, int], Callable[[], None]]] = {}
        self._step, self._order = 0, (0, 0)

    def at(self, step: int, order: tuple[int, int]) -> LastOfStep:
        self._step, self._order = step, order
        return self

    def warn(self, message: str, position: int) -> None:
        self._keep(partial(self._target.warn, message, position))

    def info(self, message: str, position: int) -> None:
        self._keep(partial(self._target.info, message, position))

    def _keep(self, emit: Callable[[], None]) -> None:
        kept = self._last.get(self._step)
        if kept is None or kept[0] <= self._order:
            self._last[self._step] = (self._order, emit)

    def flush(self) -> None:
        for step in sorted(self._last):
            self._last[step][1]()
        self._last.clear()
