"""Questions about series rather than samples: which there are, how they are labelled, what they mean, how many.

A series counts for a time when a segment that holds it overlaps the time: exact to about an hour, as Prometheus is to
its blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.fanout.request import Kind
from lakerunner.query.lake_source import LakeSource
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series.interned import INTERNED
from lakerunner.query.series.matchers import Matcher, MatchKind

#: One selector or several: a series that any of them accepts is meant. None at all means every series.
Selectors = Sequence[Sequence[Matcher]]


@dataclass(frozen=True, slots=True)
class About:
    """What the author of a metric says of it."""

    type: str
    help: str
    unit: str


@dataclass(frozen=True, slots=True)
class Exemplar:
    timestamp_ms: int
    value: float
    trace_id: str
    span_id: str
    #: Further attributes, as a JSON object, or "".
    attributes: str


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many series there are, and what makes them many. Lists are (name, number), the largest first."""

    series: int
    metric_names: int
    label_pairs: int
    by_metric_name: list[tuple[str, int]] = field(default_factory=list)
    values_by_label: list[tuple[str, int]] = field(default_factory=list)
    bytes_by_label: list[tuple[str, int]] = field(default_factory=list)
    by_label_pair: list[tuple[str, int]] = field(default_factory=list)


def series(source: LakeSource, selectors: Selectors, start_ms: int, end_ms: int, limit: int = 0) -> list[LabelSet]:
    """The series that any selector accepts, in the order of their labels; with a limit, that many of them."""
    tables = _tables(source, Kind.SERIES, selectors, start_ms, end_ms)
    found = {labels for table in tables for labels in _sets(source, table)}
    ordered = sorted(found, key=lambda labels: labels.pairs)
    return ordered[:limit] if limit else ordered


def label_names(source: LakeSource, selectors: Selectors, start_ms: int, end_ms: int, limit: int = 0) -> list[str]:
    return _texts(source, selectors, start_ms, end_ms, "", limit)


def label_values(
    source: LakeSource, name: str, selectors: Selectors, start_ms: int, end_ms: int, limit: int = 0
) -> list[str]:
    return _texts(source, selectors, start_ms, end_ms, name, limit)


def metadata(
    source: LakeSource, start_ms: int, end_ms: int, metric: str = "", limit: int = 0
) -> dict[str, list[About]]:
    """By name of metric, what is said of it. A histogram is told under its base name, as Prometheus tells it."""
    selectors = [[matcher]] if (matcher := _named(metric)) else []
    found: dict[str, dict[About, None]] = {}
    for table in _tables(source, Kind.SERIES, selectors, start_ms, end_ms):
        about = table.select(["base_name", "type", "unit", "description"])
        for row in about.group_by(about.column_names).aggregate([]).to_pylist():
            one = About(row["type"] or "unknown", row["description"] or "", row["unit"] or "")
            found.setdefault(row["base_name"], {})[one] = None
    names = sorted(found)[:limit] if limit else sorted(found)
    return {name: list(found[name]) for name in names}


def exemplars(
    source: LakeSource, matchers: Sequence[Matcher], start_ms: int, end_ms: int
) -> list[tuple[LabelSet, list[Exemplar]]]:
    """Exemplars by series, in order of time, each once."""
    found: dict[LabelSet, dict[Exemplar, None]] = {}
    for table in _tables(source, Kind.EXEMPLARS, [matchers], start_ms, end_ms):
        for row in table.to_pylist():
            labels = LabelSet(tuple(sorted(row["labels"])))
            one = Exemplar(
                row["timestamp_ms"], row["value"], row["trace_id"] or "", row["span_id"] or "", row["attributes"] or ""
            )
            found.setdefault(labels, {})[one] = None
    ordered = sorted(found.items(), key=lambda entry: entry[0].pairs)
    return [(labels, sorted(held, key=lambda one: (one.timestamp_ms, one.value))) for labels, held in ordered]


def cardinality(source: LakeSource, start_ms: int, end_ms: int, limit: int = 10) -> Cardinality:
    """Counts over all series, as Prometheus' status page has them. Classic series of histograms count too."""
    names: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    every = series(source, [], start_ms, end_ms)
    for labels in every:
        names[labels.get(METRIC_NAME)] += 1
        pairs.update(labels.pairs)
    values: Counter[str] = Counter(name for name, _ in pairs)
    sizes: Counter[str] = Counter()
    for name, value in pairs:
        sizes[name] += len(value.encode())
    by_pair = Counter({f"{name}={value}": count for (name, value), count in pairs.items()})
    return Cardinality(
        len(every),
        len(names),
        len(pairs),
        names.most_common(limit),
        values.most_common(limit),
        sizes.most_common(limit),
        by_pair.most_common(limit),
    )


def _texts(source: LakeSource, selectors: Selectors, start_ms: int, end_ms: int, label: str, limit: int) -> list[str]:
    found: set[str] = set()
    for table in _tables(source, Kind.LABELS, selectors, start_ms, end_ms, label):
        found.update(table.column("text").to_pylist())
    return sorted(found)[:limit] if limit else sorted(found)


def _tables(
    source: LakeSource, kind: Kind, selectors: Selectors, start_ms: int, end_ms: int, label: str = ""
) -> Iterator[pa.Table]:
    source.look_up(start_ms, end_ms)
    for matchers in selectors or [()]:
        leaf = Leaf(source.org_id, tuple(matchers), start_ms, end_ms)
        for answer in source.answers(leaf, kind, label):
            if answer.table is not None:
                yield answer.table


def _sets(source: LakeSource, table: pa.Table) -> list[LabelSet]:
    table = table.combine_chunks()
    if not table.num_rows:
        return []
    tids = table.column("tid").to_pylist()
    return INTERNED.of_maps(source.org_id, tids, table.column("labels").chunk(0))


def _named(metric: str) -> Matcher | None:
    return Matcher(METRIC_NAME, MatchKind.EQUAL, metric) if metric else None
