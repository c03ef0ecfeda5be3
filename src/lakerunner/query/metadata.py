"""Queries about series instead of samples: label sets, label names and values, metadata, exemplars, cardinality.

A series belongs to a time range if a segment that contains it overlaps the range. That is exact to about an hour, just
as Prometheus is exact to its blocks. Where raw segments have expired by retention, the segments of the finest tier
that is left answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from lakerunner.model.errors import LimitHit
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.fanout.protocol import Kind
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series import reading as reading_of
from lakerunner.query.series.interned import INTERNED
from lakerunner.query.series.matchers import Matcher, MatchKind

#: A series matches if any of the selectors accepts it. An empty list matches every series.
Selectors = Sequence[Sequence[Matcher]]


@dataclass(frozen=True, slots=True)
class MetricMeta:
    """The metadata that a metric was sent with."""

    type: str
    help: str
    unit: str


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A trace that stands for one sample of a series."""

    series: LabelSet
    #: The trace and span ids, and further attributes.
    labels: LabelSet
    value: float
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Cardinality:
    """The number of series, and what contributes most to it. Lists are (name, number), largest first."""

    series: int
    metric_names: int
    label_pairs: int
    by_metric_name: list[tuple[str, int]] = field(default_factory=list)
    values_by_label: list[tuple[str, int]] = field(default_factory=list)
    bytes_by_label: list[tuple[str, int]] = field(default_factory=list)
    by_label_pair: list[tuple[str, int]] = field(default_factory=list)


def series(source: LakeQuery, selectors: Selectors, start_ms: int, end_ms: int) -> list[LabelSet]:
    """The series that any selector accepts, ordered by their labels."""
    found = {
        labels for table in _tables(source, Kind.SERIES, selectors, start_ms, end_ms) for labels in _sets(source, table)
    }
    if len(found) > source.limits.max_series:
        raise LimitHit(
            f"cannot list {len(found):,} series: more than {source.limits.max_series:,} (api.max_series)",
            hint="narrow the selectors",
        )
    return sorted(found, key=lambda labels: labels.pairs)


def label_names(source: LakeQuery, selectors: Selectors, start_ms: int, end_ms: int) -> list[str]:
    return _texts(source, selectors, start_ms, end_ms, "")


def label_values(source: LakeQuery, name: str, selectors: Selectors, start_ms: int, end_ms: int) -> list[str]:
    return _texts(source, selectors, start_ms, end_ms, name)


def metadata(source: LakeQuery, start_ms: int, end_ms: int, metric: str = "") -> dict[str, list[MetricMeta]]:
    """Metadata by metric name. A histogram is listed under its base name, as in Prometheus."""
    selectors = [[matcher]] if (matcher := _named(metric)) else []
    found: dict[str, dict[MetricMeta, None]] = {}
    for table in _tables(source, Kind.SERIES, selectors, start_ms, end_ms):
        described = table.select(["base_name", "type", "unit", "description"])
        for row in described.group_by(described.column_names).aggregate([]).to_pylist():
            meta = MetricMeta(row["type"] or "unknown", row["description"] or "", row["unit"] or "")
            found.setdefault(row["base_name"], {})[meta] = None
    return {name: list(found[name]) for name in sorted(found)}


def exemplars(source: LakeQuery, selectors: Selectors, start_ms: int, end_ms: int) -> list[Exemplar]:
    """The distinct exemplars of all series that a selector accepts, ordered by series and time."""
    found: dict[Exemplar, None] = {}
    for table in _tables(source, Kind.EXEMPLARS, selectors, start_ms, end_ms) if selectors else ():
        for row in table.to_pylist():
            series = LabelSet(tuple(sorted(row["labels"])))
            found[Exemplar(series, _exemplar_labels(row), row["value"], row["timestamp_ms"])] = None
    return sorted(found, key=lambda each: (each.series.pairs, each.timestamp_ms, each.value))


def _exemplar_labels(row: Mapping[str, Any]) -> LabelSet:
    attributes = orjson.loads(row["attributes"]) if row["attributes"] else {}
    labels = {str(name): value if isinstance(value, str) else str(value) for name, value in attributes.items()}
    return LabelSet.of({**labels, "trace_id": row["trace_id"] or "", "span_id": row["span_id"] or ""})


def cardinality(source: LakeQuery, start_ms: int, end_ms: int, limit: int = 10) -> Cardinality:
    """Counts over all series, like those of Prometheus' status page. Classic series of histograms count too."""
    names: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    all_series = series(source, [], start_ms, end_ms)
    for labels in all_series:
        names[labels.get(METRIC_NAME)] += 1
        pairs.update(labels.pairs)
    values: Counter[str] = Counter(name for name, _ in pairs)
    sizes: Counter[str] = Counter()
    for name, value in pairs:
        sizes[name] += len(value.encode())
    by_pair = Counter({f"{name}={value}": count for (name, value), count in pairs.items()})
    return Cardinality(
        len(all_series),
        len(names),
        len(pairs),
        names.most_common(limit),
        values.most_common(limit),
        sizes.most_common(limit),
        by_pair.most_common(limit),
    )


def _texts(source: LakeQuery, selectors: Selectors, start_ms: int, end_ms: int, label: str) -> list[str]:
    found: set[str] = set()
    for table in _tables(source, Kind.LABELS, selectors, start_ms, end_ms, label):
        found.update(table.column("text").to_pylist())
    return sorted(found)


def _tables(
    source: LakeQuery, kind: Kind, selectors: Selectors, start_ms: int, end_ms: int, label: str = ""
) -> Iterator[pa.Table]:
    reading = reading_of.EXEMPLARS if kind is Kind.EXEMPLARS else reading_of.SERIES
    leaves = [Leaf.of_samples(matchers, start_ms, end_ms, reading) for matchers in selectors or [()]]
    source.look_up(leaves)
    for leaf in leaves:
        for answer in source.scan(leaf, kind, label):
            if answer.table is not None:
                yield answer.table


def _sets(source: LakeQuery, table: pa.Table) -> list[LabelSet]:
    table = table.combine_chunks()
    if not table.num_rows:
        return []
    tids = table.column("tid").to_pylist()
    return INTERNED.of_maps(source.org_id, tids, table.column("labels").chunk(0))


def _named(metric: str) -> Matcher | None:
    return Matcher(METRIC_NAME, MatchKind.EQUAL, metric) if metric else None
