"""The metadata of metrics, beside their points: name, unit, type, temporality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints
from lakerunner.formats.otlp.anyvalue import DuplicateOneof
from lakerunner.formats.otlp.factorize import factorize_rows
from lakerunner.formats.otlp.names import metric_name
from lakerunner.formats.otlp.nesting import Nest, member, null_if_empty

GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY = range(5)
MEMBERS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
DELTA = 1
CUMULATIVE = 2

_TYPES = pa.array(["gauge", "counter", "histogram", "histogram", "summary", "gauge"])
_UP_AND_DOWN_SUM = 5
_TEMPORALITIES = pa.array([None, "delta", "cumulative"], pa.string())


@dataclass(frozen=True, slots=True)
class MetricMetadata:
    """Columns with one element per metric message."""

    kind: Ints
    temporality_code: Ints
    resource_of: Ints
    scope_of: Ints
    #: Equal for messages that describe the same metric of equal resources and scopes.
    identity_of: Ints
    prometheus_name: pa.Array
    otel_name: pa.Array
    type: pa.Array
    unit: pa.Array
    description: pa.Array
    temporality: pa.Array
    monotonic: pa.Array

    def named(self, metric: Ints, suffixes: list[str] | None) -> pa.Array:
        names = self.prometheus_name.take(pa.array(metric))
        return names if suffixes is None else pc.binary_join_element_wise(names, pa.array(suffixes, pa.string()), "")


def metadata_of(nest: Nest, resource_of: Ints, scope_of: Ints) -> MetricMetadata:
    """Read the metadata. `resource_of` and `scope_of` hold the number of each message's distinct resource and scope."""
    metrics = nest.records
    kind = _kinds(metrics)
    monotonic = pc.fill_null(member(metrics.field("sum"), "is_monotonic"), False)
    temporality = _temporality(metrics)
    rising = monotonic.to_numpy(zero_copy_only=False)
    name, unit, description = (metrics.field(part).dictionary_encode() for part in ("name", "unit", "description"))
    codes = [part.indices.to_numpy(zero_copy_only=False).astype(np.int64) for part in (name, unit, description)]
    # Rows of negative numbers could collide: kind is -1 without points, and the wire may hold any temporality.
    numbers = (kind + 1, np.maximum(temporality, 0), rising.astype(np.int64))
    identity_of, first = factorize_rows(resource_of, scope_of, *codes, *numbers)
    return MetricMetadata(
        kind=kind,
        temporality_code=temporality,
        resource_of=resource_of,
        scope_of=scope_of,
        identity_of=identity_of,
        prometheus_name=_names(metrics, first, kind, rising).take(pa.array(identity_of)),
        otel_name=metrics.field("name"),
        type=_TYPES.take(pa.array(np.where((kind == SUM) & ~rising, _UP_AND_DOWN_SUM, np.maximum(kind, 0)))),
        unit=null_if_empty(metrics.field("unit")),
        description=null_if_empty(metrics.field("description")),
        temporality=_TEMPORALITIES.take(pa.array(np.clip(temporality, 0, 2))),
        monotonic=pc.if_else(pa.array(kind == SUM), monotonic, pa.scalar(None, pa.bool_())),
    )


def _kinds(metrics: pa.StructArray) -> Ints:
    """Return the member that holds the points of each metric; -1 for none."""
    kind = np.full(len(metrics), -1, np.int64)
    present = 0
    for number, name in enumerate(MEMBERS):
        valid = metrics.field(name).is_valid().to_numpy(zero_copy_only=False)
        kind[valid] = number
        present += int(valid.sum())
    if present != int((kind >= 0).sum()):
        raise DuplicateOneof
    return kind


def _temporality(metrics: pa.StructArray) -> Ints:
    found = [member(metrics.field(MEMBERS[k]), "aggregation_temporality") for k in (SUM, HISTOGRAM, EXPONENTIAL)]
    codes: Ints = pc.coalesce(*found, pa.scalar(0, pa.int32())).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _names(metrics: pa.StructArray, first: Ints, kind: Ints, rising: np.ndarray) -> pa.Array:
    """Return the Prometheus name of each distinct metric."""
    at = pa.array(first)
    texts = zip(metrics.field("name").take(at).to_pylist(), metrics.field("unit").take(at).to_pylist(), strict=True)
    kinds = zip(kind[first].tolist(), rising[first].tolist(), strict=True)
    return pa.array(
        [
            metric_name(name, unit, monotonic=k == SUM and up, gauge=k == GAUGE)
            for (name, unit), (k, up) in zip(texts, kinds, strict=True)
        ],
        pa.string(),
    )
