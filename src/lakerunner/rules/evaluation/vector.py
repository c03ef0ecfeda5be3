"""Vectors as rules see them: one sample per series at one time, and the function that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet, prometheus_label
from lakerunner.query.rules.spans import label_of
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


def of_spans(samples: Sequence[Sample]) -> list[Sample]:
    """Samples of TraceQL with labels as Prometheus has them: named as those of materialized spans, values as texts.

    A field without a value is no label. Two fields that would have the same name keep their scopes.

    >>> of_spans([Sample(LabelSet.of({"resource.service.name": "scart", "span.http.route": "s"}), 1.0)])[0].labels
    LabelSet(pairs=(('service_name', 'cart'),))
    """
    fields = {name for sample in samples for name, _ in sample.labels}
    short = {name: label_of(name) for name in fields}
    taken = list(short.values())
    names = {name: label if taken.count(label) == 1 else prometheus_label(name) for name, label in short.items()}
    return [
        replace(sample, labels=LabelSet.of({names[name]: text[1:] for name, text in sample.labels if text[1:]}))
        for sample in samples
    ]
