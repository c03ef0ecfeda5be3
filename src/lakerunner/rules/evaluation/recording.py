"""Recording rules: the samples that a vector is recorded as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.rules.evaluation.vector import RuleError, Sample


def record(name: str, labels: Mapping[str, str], vector: Sequence[Sample], limit: int = 0) -> list[Sample]:
    """The samples of a recording rule: the vector with the rule's name and labels.

    An empty label of the rule removes the label. Two samples with the same labels, or more than `limit` (0: any
    number), fail the whole evaluation, as in Prometheus.
    """
    made = [
        Sample(LabelSet.of({**dict(sample.labels), METRIC_NAME: name, **labels}), sample.value, sample.histogram)
        for sample in vector
    ]
    if len({sample.labels for sample in made}) < len(made):
        raise RuleError("vector contains metrics with the same labelset after applying rule labels")
    if 0 < limit < len(made):
        raise RuleError(f"exceeded limit of {limit} with {len(made)} series")
    return made
