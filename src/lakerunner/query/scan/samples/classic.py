"""The classic series of stored histograms, as Prometheus' OTLP translation would have written them.

A histogram with bounds b1 < b2 < … becomes `_bucket{le="b1"}`, `_bucket{le="b2"}`, …, `_bucket{le="+Inf"}` with
cumulative counts, `_count`, and `_sum` unless it was sent without one. A stale marker becomes one in each series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lakerunner.model.labels import LabelSet
from lakerunner.model.samples import STALE_BITS
from lakerunner.query.scan.samples.decoded import ClassicGroup, choose, contained, with_run_starts
from lakerunner.query.scan.samples.runs import Samples, within
from lakerunner.query.series.arrays import offsets_of
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.classic_names import BUCKET, LE, SUM
from lakerunner.query.series.go_format import plain
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Floats, Ints
from lakerunner.query.series.interned import INTERNED, LazyLabels
from lakerunner.query.series.matchers import Matcher, accepting


def expand(parents: Samples, labels: Sequence[LabelSet], suffix: str) -> ClassicGroup:
    """The classic series with the suffix, for all parents. `labels` has one entry per run of `parents`."""
    column = parents.histograms
    none = np.zeros(0, np.int64)
    if column is None:
        return ClassicGroup(Samples.none(), none, none, [])
    wanted = column.row >= 0
    wanted[wanted] = column.schema[column.row[wanted]] == CUSTOM_SCHEMA
    if suffix == SUM and parents.sumless is not None:
        wanted[wanted] = ~parents.sumless[column.row[wanted]]
    at = np.flatnonzero(wanted)
    if not len(at):
        return ClassicGroup(Samples.none(), none, none, [])
    series = np.searchsorted(parents.offsets, at, side="right") - 1
    if suffix == BUCKET:
        return _buckets(parents, labels, column, at, series)
    values = column.sum if suffix == SUM else np.where(_stale(column), STALE, column.count)
    return _plain(parents, labels, suffix, at, series, values[column.row[at]])


def choose_classic(
    group: ClassicGroup,
    parents: Ints,
    matchers: Sequence[Matcher],
    start_ms: int | None,
    end_ms: int | None,
    check: Callable[[], object] = lambda: None,
) -> Samples:
    """The classic series of some parents. The caller has applied all matchers to the parents, except those of `le`."""
    keep = contained(group.parents, parents)
    of_le = [matcher for matcher in matchers if matcher.name == LE]
    if of_le and group.les:
        accepted = np.array(list(map(accepting(of_le, check), group.les)), np.bool_)
        keep &= accepted[group.le_of]
    chosen, runs = choose(group.samples, keep, start_ms, end_ms)
    return replace(chosen, labels=LazyLabels(lambda: [group.samples.labels[run] for run in runs.tolist()]))


def _plain(
    parents: Samples, labels: Sequence[LabelSet], suffix: str, at: Ints, series: Ints, values: Floats
) -> ClassicGroup:
    lengths = np.bincount(series, minlength=len(parents.tids))
    rows = np.flatnonzero(lengths)
    derived = [INTERNED.derived(int(parents.tids[row]), labels[row], suffix) for row in rows.tolist()]
    samples = Samples(
        np.array([tid for tid, _ in derived], np.int64),
        [each for _, each in derived],
        offsets_of(lengths[rows]),
        parents.timestamps_ms[at],
        values,
        _starts(parents, at, series),
        rollup=None if parents.rollup is None else parents.rollup.at(at),
    )
    return ClassicGroup(with_run_starts(samples), parents.tids[rows], np.zeros(len(rows), np.int64), [])


def _buckets(
    parents: Samples, labels: Sequence[LabelSet], column: HistogramColumn, at: Ints, series: Ints
) -> ClassicGroup:
    """Bucket series. Samples of one series with the same bounds form a matrix, times by buckets, to be transposed."""
    hist = column.row[at]
    width = np.diff(column.bounds_offsets)[hist] + 1
    cumulative = _cumulative(column, hist, width)
    first = np.flatnonzero(_new_layout(column, hist, series))
    rows_in = np.diff(np.append(first, len(at)))
    columns_in = width[first]
    # Element (time i, bucket j) of a matrix that begins at `base` and has n times is at base + j * n + i.
    matrix_of = np.repeat(np.arange(len(first)), rows_in)
    i = np.arange(len(at)) - first[matrix_of]
    base = offsets_of(rows_in * columns_in)[:-1]
    j = within(np.zeros(len(at), np.int64), width)
    sample = np.repeat(np.arange(len(at)), width)
    to = (base[matrix_of] + i)[sample] + j * rows_in[matrix_of][sample]
    values = np.empty(len(to))
    values[to] = cumulative
    source = np.empty(len(to), np.int64)
    source[to] = at[sample]
    tids, made, les, le_of = _named(parents, labels, column, hist[first], series[first])
    samples = Samples(
        np.array(tids, np.int64),
        made,
        offsets_of(np.repeat(rows_in, columns_in)),
        parents.timestamps_ms[source],
        values,
        _starts(parents, source, np.repeat(series, width)),
        rollup=None if parents.rollup is None else parents.rollup.at(source),
    )
    return ClassicGroup(with_run_starts(samples), np.repeat(parents.tids[series[first]], columns_in), le_of, les)


def _starts(parents: Samples, at: Ints, series: Ints) -> Ints | None:
    if parents.run_starts_ms is not None:
        return parents.run_starts_ms[series]
    return None if parents.start_timestamps_ms is None else parents.start_timestamps_ms[at]


def _named(
    parents: Samples, labels: Sequence[LabelSet], column: HistogramColumn, hist: Ints, series: Ints
) -> tuple[list[int], list[LabelSet], list[str], Ints]:
    """Ids and labels of all bucket series, the distinct bounds, and the index of each series' bound."""
    tids, made = [], []
    les: dict[str, int] = {}
    le_of: list[int] = []
    texts: dict[bytes, tuple[str, ...]] = {}
    for row, parent in zip(hist.tolist(), series.tolist(), strict=True):
        bounds = column.bounds[column.bounds_offsets[row] : column.bounds_offsets[row + 1]]
        known = texts.get(bounds.tobytes())
        if known is None:
            known = texts[bounds.tobytes()] = (*map(plain, bounds.tolist()), "+Inf")
        for le in known:
            tid, bucket_labels = INTERNED.derived(int(parents.tids[parent]), labels[parent], BUCKET, le)
            tids.append(tid)
            made.append(bucket_labels)
            le_of.append(les.setdefault(le, len(les)))
    return tids, made, list(les), np.array(le_of, np.int64)


def _cumulative(column: HistogramColumn, hist: Ints, width: Ints) -> Floats:
    """For each sample, the cumulative count up to each bound; the last one is the histogram's own count."""
    begins = offsets_of(width)
    dense = np.zeros(begins[-1])
    filled = np.diff(column.pos_offsets)[hist]
    bucket = within(column.pos_offsets[hist], filled)
    index = column.pos_index[bucket]
    inside = index < np.repeat(width, filled)
    # Added instead of assigned: a writer may have split one bucket into two entries.
    np.add.at(dense, (np.repeat(begins[:-1], filled) + index)[inside], column.pos_count[bucket][inside])
    total = np.cumsum(dense)
    total -= np.repeat(np.concatenate([[0.0], total])[begins[:-1]], width)
    total[begins[1:] - 1] = column.count[hist]
    return np.where(np.repeat(_stale(column)[hist], width), STALE, total)


def _new_layout(column: HistogramColumn, hist: Ints, series: Ints) -> npt.NDArray[np.bool_]:
    """A mask of samples that begin another series, or other bounds of the same series."""
    new = np.ones(len(hist), np.bool_)
    lengths = np.diff(column.bounds_offsets)[hist]
    new[1:] = (series[1:] != series[:-1]) | (lengths[1:] != lengths[:-1])
    same = np.flatnonzero(~new)
    current = column.bounds[within(column.bounds_offsets[hist[same]], lengths[same])]
    previous = column.bounds[within(column.bounds_offsets[hist[same - 1]], lengths[same])]
    differs = np.repeat(np.arange(len(same)), lengths[same])[current != previous]
    new[same[differs]] = True
    return new


def _stale(column: HistogramColumn) -> npt.NDArray[np.bool_]:
    stale: npt.NDArray[np.bool_] = column.sum.view(np.uint64) == np.uint64(STALE_BITS)
    return stale
