"""Selects samples of metrics for all rules of an org: matchers and dimensions are looked up once per series.

A rule reads one metric, whose samples lie together. It sees what a range function of PromQL sees: stale markers are no
samples. Native histograms and values that are no finite numbers are reported, because a rule keeps sums of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.compute import Compute
from lakerunner.model.errors import LakeError
from lakerunner.model.samples import STALE_BITS
from lakerunner.model.time import NS_PER_MS
from lakerunner.pipeline.derive.selected import Check, Coded, Floats, Ints, Selected
from lakerunner.query.series.matchers import accepting
from lakerunner.rules.definitions import Materialize
from lakerunner.rules.matches import MetricMatch, metric_match

#: What became of a rule: its samples, or why it failed.
Outcome = Selected | Exception
_FAILURES = (LakeError, pa.ArrowException, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class _Samples:
    """The samples of one metric, and the labels of its series."""

    #: The series of each sample, by its place in `labels`.
    series: Ints
    times_ns: Ints
    values: Floats
    #: Samples that a rule cannot count: histograms, and numbers that are not finite.
    failed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    labels: Sequence[dict[str, str]]


class MetricRules:
    """The compiled rules of one version of an org's catalog."""

    def __init__(self, rules: Sequence[Materialize]) -> None:
        self._rules: list[tuple[Compute, MetricMatch]] = [(rule.compute, metric_match(rule)) for rule in rules]

    def select(self, rows: pa.Table, check: Check, series: pa.Table | None = None) -> Iterator[tuple[int, Outcome]]:
        """The samples of each rule that has any, by the place of the rule. `series` describes the series of `rows`."""
        if not rows.num_rows or series is None:
            return
        names = rows.column("metric_name").combine_chunks().dictionary_encode()
        if isinstance(names, pa.ChunkedArray):
            names = names.combine_chunks()
        codes = names.indices.to_numpy(zero_copy_only=False)
        numbers = {name: number for number, name in enumerate(names.dictionary.to_pylist())}
        known: dict[str, _Samples] = {}
        for place, (compute, match) in enumerate(self._rules):
            if match.metric not in numbers:
                continue
            try:
                check()
                if match.metric not in known:
                    known[match.metric] = _samples(rows, np.flatnonzero(codes == numbers[match.metric]), series)
                yield place, _selected(known[match.metric], compute, match, check)
            except _FAILURES as error:
                yield place, error


def _samples(rows: pa.Table, of_metric: Ints, series: pa.Table) -> _Samples:
    table = rows.select(["tid", "timestamp", "value"]).take(pa.array(of_metric))
    values = table.column("value")
    numbers: Floats = pc.fill_null(values, 0.0).to_numpy()
    stale = numbers.view(np.int64) == STALE_BITS
    failed = ~stale & (~np.isfinite(numbers) | values.is_null().to_numpy())
    times_ns = table.column("timestamp").cast(pa.int64()).to_numpy() * NS_PER_MS
    tids = table.column("tid").to_numpy()
    chosen = series.filter(pc.is_in(series.column("tid"), value_set=pa.array(np.unique(tids))))
    own, first = np.unique(chosen.column("tid").to_numpy(), return_index=True)
    labels = [dict(each) for each in chosen.column("labels").take(pa.array(first)).to_pylist()]
    place = np.minimum(np.searchsorted(own, tids), max(len(own) - 1, 0))
    if not len(own) or (own[place] != tids).any():
        raise ValueError("a sample has no series")
    kept = ~stale
    return _Samples(place[kept], times_ns[kept], numbers[kept], failed[kept], labels)


def _selected(found: _Samples, compute: Compute, match: MetricMatch, check: Check) -> Selected:
    accepted = np.ones(len(found.labels), np.bool_)
    for matcher in match.matchers:
        accepts = accepting([matcher], check)
        accepted &= np.array([accepts(labels.get(matcher.name, "")) for labels in found.labels], np.bool_)
    mine = accepted[found.series]
    failed_ns = found.times_ns[mine & found.failed]
    rows = np.flatnonzero(mine & ~found.failed)
    dimensions = []
    for name in match.dimensions:
        of_series = Coded.of(pa.array([each.get(name) for each in found.labels], pa.string()), len(found.labels))
        dimensions.append(Coded(of_series.codes[found.series[rows]], of_series.words))
    amounts = None if compute is Compute.COUNT else found.values[rows]
    return Selected(found.times_ns[rows], dimensions, amounts, failed_ns)
