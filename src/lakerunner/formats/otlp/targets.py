"""Convert resources and scopes to Prometheus' terms: `job`, `instance`, promoted attributes and `target_info`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.formats.attributes import Ints, ranges
from lakerunner.formats.decoded import Tally, table_of
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import MetricOptions
from lakerunner.formats.otlp.anyvalue import Pairs
from lakerunner.formats.otlp.factorize import factorize, factorize_lists, factorize_rows
from lakerunner.formats.otlp.labels import Rank, Source
from lakerunner.formats.otlp.nesting import SERVICE_NAME, Nest, member
from lakerunner.model.labels import METRIC_NAME, LabelSet, prometheus_label
from lakerunner.model.signals.metrics import SERIES

TARGET_INFO = "target_info"
_NAMESPACE = "service.namespace"
_INSTANCE = "service.instance.id"
_IDENTIFYING = {SERVICE_NAME, _NAMESPACE, _INSTANCE}

Attributes = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Targets:
    """The distinct resources and scopes of a message. They are few, so plain Python handles them."""

    #: The number of each resource message among the distinct resources; likewise for scopes.
    resource_number: Ints
    scope_number: Ints
    resources: list[Attributes]
    scopes: list[Attributes]

    def sources(self, resource_of: Ints, scope_of: Ints, options: MetricOptions) -> Iterator[Source]:
        """Yield the labels that series get from their resource and scope."""
        wanted = set(options.promoted_resource_attributes)
        yield _spread(Rank.TARGET, [_target_labels(attributes) for attributes in self.resources], resource_of)
        if wanted:
            promoted = [_by_key(attributes, lambda key: key in wanted) for attributes in self.resources]
            labels = [[(prometheus_label(key), text) for key, text in pairs] for pairs in promoted]
            yield _spread(Rank.PROMOTED, labels, resource_of)
        if options.promote_scope:
            yield _spread(Rank.SCOPE, [_scope_labels(attributes) for attributes in self.scopes], scope_of)


def targets_of(nest: Nest, limits: Limits, tally: Tally) -> Targets:
    resource_number, resources = _distinct(member(nest.resources, "attributes"), limits, tally)
    attributes, scopes = _distinct(member(nest.scopes, "attributes"), limits, tally)
    heads = [member(nest.scopes, "name"), member(nest.scopes, "version"), nest.scope_parents.field("schema_url")]
    encoded = [head.fill_null("").dictionary_encode() for head in heads]
    codes = [part.indices.to_numpy(zero_copy_only=False).astype(np.int64) for part in encoded]
    scope_number, first = factorize_rows(attributes, *codes)
    named = [
        [(key, head[i].as_py() or "") for key, head in zip(("", "version", "schema_url"), heads, strict=True)]
        + scopes[int(attributes[i])]
        for i in first.tolist()
    ]
    return Targets(resource_number, scope_number, resources, named)


def _distinct(lists: pa.ListArray, limits: Limits, tally: Tally) -> tuple[Ints, list[Attributes]]:
    pairs = Pairs.of(lists, limits, tally)
    texts = pairs.values.text().fill_null("").dictionary_encode()
    value = texts.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    sizes = np.bincount(pairs.rows, minlength=pairs.size)
    number, first = factorize_lists(pairs.codes.astype(np.int64) * max(len(texts.dictionary), 1) + value, sizes)
    words = texts.dictionary.to_pylist()
    starts = np.cumsum(sizes) - sizes
    return number, [
        [(pairs.keys[pairs.codes[i]], words[value[i]]) for i in range(starts[at], starts[at] + sizes[at])]
        for at in first.tolist()
    ]


def _by_key(attributes: Attributes, wanted: Callable[[str], bool]) -> Attributes:
    """Return the attributes with a wanted key, sorted by key. The sort is stable."""
    return sorted((pair for pair in attributes if wanted(pair[0])), key=lambda pair: pair[0])


def _target_labels(attributes: Attributes) -> Attributes:
    # Reversed, so that the first of a repeated key wins, as it does in the collector.
    found = dict(reversed(attributes))
    labels = []
    if SERVICE_NAME in found:
        job = f"{found[_NAMESPACE]}/{found[SERVICE_NAME]}" if _NAMESPACE in found else found[SERVICE_NAME]
        labels.append(("job", job))
    if _INSTANCE in found:
        labels.append(("instance", found[_INSTANCE]))
    return labels


def _scope_labels(attributes: Attributes) -> Attributes:
    """Return name, version and schema URL, then the scope's attributes. A scope without a name has no labels."""
    if not attributes[0][1]:
        return []
    return [
        ("otel_scope_name", attributes[0][1]),
        *((prometheus_label(f"otel_scope_{key}"), text) for key, text in attributes[1:]),
    ]


def _spread(rank: Rank, labels: list[Attributes], owner_of: Ints) -> Source:
    """Give the labels of each resource or scope to all of its series."""
    names = sorted({name for pairs in labels for name, _ in pairs})
    place = {name: i for i, name in enumerate(names)}
    sizes = np.array([len(pairs) for pairs in labels], np.int64)
    flat = [pair for pairs in labels for pair in pairs]
    starts = np.cumsum(sizes) - sizes
    taken = ranges(starts[owner_of], sizes[owner_of])
    return Source(
        rank=rank,
        series=np.repeat(np.arange(len(owner_of)), sizes[owner_of]),
        names=names,
        name=np.array([place[name] for name, _ in flat], np.int64)[taken],
        values=pa.array([text for _, text in flat], pa.string()),
        value=taken,
    )


def target_info(
    targets: Targets, resource_of_point: Ints, time_ms: Ints, options: MetricOptions
) -> tuple[list[LabelSet], Ints, Ints]:
    """Return the `target_info` series, then the series number and the time of each of their samples."""
    resource, at_ms = _sample_times(resource_of_point, time_ms, options.target_info_step_ms)
    number_of = np.full(len(targets.resources), -1, np.int64)
    sets: list[LabelSet] = []
    for number in np.unique(resource).tolist():
        labels = _info_labels(targets.resources[number])
        if labels is not None:
            number_of[number] = len(sets)
            sets.append(labels)
    series = number_of[resource]
    return sets, series[series >= 0], at_ms[series >= 0]


def _sample_times(resource_of_point: Ints, time_ms: Ints, step_ms: int) -> tuple[Ints, Ints]:
    """Choose the first point of each half step of a resource, and its last point, so samples are never a step apart.

    Prometheus walks from the first to the last time in steps; one point with a wrong clock would make that very long.
    """
    _, once = factorize_rows(resource_of_point, factorize(time_ms)[0])
    resource, at = resource_of_point[once], time_ms[once]
    order = np.lexsort((at, resource))
    resource, at = resource[order], at[order]
    fresh = np.ones(len(at), np.bool_)
    half = at // max(step_ms // 2, 1)
    fresh[1:] = (resource[1:] != resource[:-1]) | (half[1:] != half[:-1])
    last = np.ones(len(at), np.bool_)
    last[:-1] = resource[1:] != resource[:-1]
    return resource[fresh | last], at[fresh | last]


def _info_labels(attributes: Attributes) -> LabelSet | None:
    target = dict(_target_labels(attributes))
    rest = _by_key(attributes, lambda key: key not in _IDENTIFYING)
    # Without further attributes the series is useless; without job and instance nothing could be joined to it.
    if not rest or not any(target.values()):
        return None
    labels: dict[str, str] = {}
    for key, text in rest:
        if name := prometheus_label(key):
            labels[name] = f"{labels[name]};{text}" if name in labels else text
    return LabelSet.of({**labels, **target, METRIC_NAME: TARGET_INFO})


def info_table(sets: list[LabelSet], key: bytes) -> pa.Table:
    columns = {
        "tid": pa.array([labels.tid(key) for labels in sets], pa.int64()),
        "metric_name": pa.array([TARGET_INFO] * len(sets), pa.string()),
        "type": pa.array(["info"] * len(sets), pa.string()),
        "description": pa.array(["Target metadata"] * len(sets), pa.string()),
        "labels": pa.array([list(labels.without(METRIC_NAME)) for labels in sets], pa.map_(pa.string(), pa.string())),
    }
    return table_of(SERIES, columns, len(sets))
