"""The classic series of stored histograms, as Prometheus' OTLP translation would have written them.

A histogram with bounds b1 < b2 < … becomes `_bucket{le="b1"}`, `_bucket{le="b2"}`, …, `_bucket{le="+Inf"}` with
cumulative counts, `_count`, and `_sum` unless it was sent without one. A stale marker becomes one in each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lakerunner.query.promql.go_format import plain
from lakerunner.query.promql.histogram import CUSTOM_SCHEMA, Floats, Ints
from lakerunner.query.promql.histogram_column import HistogramColumn
from lakerunner.query.promql.matchers import Matcher
from lakerunner.query.promql.source import STALE, STALE_BITS
from lakerunner.query.scan.labels import INTERNED
from lakerunner.query.scan.names import BUCKET, LE, SUM
from lakerunner.query.scan.samples import Samples, offsets_of, within


def expand(parents: Samples, suffix: str, matchers: Sequence[Matcher]) -> Samples:
    """The series of that suffix of all parents. `matchers` were tried on the parents already, but for `le`."""
    column = parents.histograms
    if column is None:
        return Samples.none()
    held = column.row >= 0
    held[held] = column.schema[column.row[held]] == CUSTOM_SCHEMA
    if suffix == SUM and parents.sumless is not None:
        held[held] = ~parents.sumless[column.row[held]]
    at = np.flatnonzero(held)
    series = np.searchsorted(parents.offsets, at, side="right") - 1
    if suffix == BUCKET:
        return _buckets(parents, column, at, series, [matcher for matcher in matchers if matcher.name == LE])
    values = column.sum if suffix == SUM else np.where(_stale(column), STALE, column.count)
    return _plain(parents, suffix, at, series, values[column.row[at]])


def _plain(parents: Samples, suffix: str, at: Ints, series: Ints, values: Floats) -> Samples:
    lengths = np.bincount(series, minlength=len(parents.tids))
    rows = np.flatnonzero(lengths)
    made = [INTERNED.derived(int(parents.tids[row]), parents.labels[row], suffix) for row in rows.tolist()]
    return Samples(
        np.array([tid for tid, _ in made], np.int64),
        [labels for _, labels in made],
        offsets_of(lengths[rows]),
        parents.timestamps_ms[at],
        values,
        None if parents.start_timestamps_ms is None else parents.start_timestamps_ms[at],
    )


def _buckets(parents: Samples, column: HistogramColumn, at: Ints, series: Ints, matchers: Sequence[Matcher]) -> Samples:
    """Samples of one series with the same bounds are a matrix, times by buckets: its transpose is the answer."""
    if not len(at):
        return Samples.none()
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
    return _named(parents, column, hist[first], series[first], rows_in, columns_in, values, source, matchers)


def _named(
    parents: Samples,
    column: HistogramColumn,
    hist: Ints,
    series: Ints,
    rows_in: Ints,
    columns_in: Ints,
    values: Floats,
    source: Ints,
    matchers: Sequence[Matcher],
) -> Samples:
    tids, labels, kept = [], [], []
    accepted: dict[str, bool] = {}
    for row, parent in zip(hist.tolist(), series.tolist(), strict=True):
        bounds = column.bounds[column.bounds_offsets[row] : column.bounds_offsets[row + 1]].tolist()
        for le in (*map(plain, bounds), "+Inf"):
            wanted = accepted.get(le)
            if wanted is None:
                wanted = accepted[le] = all(matcher.matches(le) for matcher in matchers)
            kept.append(wanted)
            if wanted:
                tid, made = INTERNED.derived(int(parents.tids[parent]), parents.labels[parent], BUCKET, le)
                tids.append(tid)
                labels.append(made)
    keep = np.array(kept, np.bool_)
    lengths = np.repeat(rows_in, columns_in)
    if not keep.all():
        chosen = np.repeat(keep, lengths)
        values, source, lengths = values[chosen], source[chosen], lengths[keep]
    starts = parents.start_timestamps_ms
    return Samples(
        np.array(tids, np.int64),
        labels,
        offsets_of(lengths),
        parents.timestamps_ms[source],
        values,
        None if starts is None else starts[source],
    )


def _cumulative(column: HistogramColumn, hist: Ints, width: Ints) -> Floats:
    """For each sample the counts up to each bound; the last one is the histogram's own count."""
    begins = offsets_of(width)
    dense = np.zeros(begins[-1])
    filled = np.diff(column.pos_offsets)[hist]
    bucket = within(column.pos_offsets[hist], filled)
    index = column.pos_index[bucket]
    inside = index < np.repeat(width, filled)
    # Added, not put: a writer may have spread one bucket over two entries.
    np.add.at(dense, (np.repeat(begins[:-1], filled) + index)[inside], column.pos_count[bucket][inside])
    total = np.cumsum(dense)
    total -= np.repeat(np.concatenate([[0.0], total])[begins[:-1]], width)
    total[begins[1:] - 1] = column.count[hist]
    return np.where(np.repeat(_stale(column)[hist], width), STALE, total)


def _new_layout(column: HistogramColumn, hist: Ints, series: Ints) -> npt.NDArray[np.bool_]:
    """Where another series begins, or the same one goes on with other bounds."""
    new = np.ones(len(hist), np.bool_)
    lengths = np.diff(column.bounds_offsets)[hist]
    new[1:] = (series[1:] != series[:-1]) | (lengths[1:] != lengths[:-1])
    same = np.flatnonzero(~new)
    mine = column.bounds[within(column.bounds_offsets[hist[same]], lengths[same])]
    before = column.bounds[within(column.bounds_offsets[hist[same - 1]], lengths[same])]
    differs = np.repeat(np.arange(len(same)), lengths[same])[mine != before]
    new[same[differs]] = True
    return new


def _stale(column: HistogramColumn) -> npt.NDArray[np.bool_]:
    stale: npt.NDArray[np.bool_] = column.sum.view(np.uint64) == np.uint64(STALE_BITS)
    return stale
