"""Vectors as rules see them: one sample per series at one time, and the function that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.results import QueryResult, ScalarResult, VectorResult


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a series. Where `histogram` is set, it is the value."""

    labels: LabelSet
    value: float
    histogram: Histogram | None = None


#: The vector of an expression at a time in milliseconds.
Ask = Callable[[str, int], Sequence[Sample]]


class RuleError(BadInput):
    """A rule could not be evaluated. The text is the one that Prometheus gives."""


def samples_of(result: QueryResult) -> list[Sample]:
    """The result of an instant query as a vector; a scalar is a sample without labels."""
    value = result.value
    if isinstance(value, ScalarResult):
        return [Sample(LabelSet(()), value.value)]
    if not isinstance(value, VectorResult):
        raise RuleError("rule result is not a vector or scalar")
    return [
        Sample(labels, float(number), histogram)
        for labels, number, histogram in zip(value.labels, value.values.tolist(), value.histograms, strict=True)
    ]
