"""Hidden samples: leaves the samples of deleted series out of what a segment holds, until it is rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.model.hidden import HiddenRows
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.scan.hidden import matchers_of
from lakerunner.query.scan.samples.decoded import DecodedGroup, contained
from lakerunner.query.scan.samples.opened import Opener, SampleTally
from lakerunner.query.scan.samples.row_groups import Wanted
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.scan.samples.series_table import Chosen, SeriesTable
from lakerunner.query.series.arrays import offsets_of
from lakerunner.query.series.histograms.column import with_rows
from lakerunner.query.series.histograms.histogram import Ints

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class HiddenSeries:
    """Series, by their sorted ids, whose samples from `start_ms` to `end_ms` are hidden, both included."""

    tids: Ints
    start_ms: int
    end_ms: int

    def mask(self, tids: Ints, timestamps_ms: Ints) -> Mask:
        """Which of these samples are hidden."""
        in_time = (timestamps_ms >= self.start_ms) & (timestamps_ms <= self.end_ms)
        return in_time & contained(tids, self.tids)


def hidden_series(hidden: Sequence[HiddenRows], table: SeriesTable) -> list[HiddenSeries]:
    """What a segment hides. Only stored series are named: classic ones vanish with their histogram."""
    found = []
    for each in hidden:
        tids = table.choose(matchers_of(each.condition)).stored_tids
        if len(tids):
            found.append(HiddenSeries(tids, -(-each.start_ns // NS_PER_MS), -(-each.end_ns // NS_PER_MS) - 1))
    return found


def hidden_mask(hidden: Sequence[HiddenSeries], tids: Ints, timestamps_ms: Ints) -> Mask:
    found = np.zeros(len(tids), np.bool_)
    for each in hidden:
        found |= each.mask(tids, timestamps_ms)
    return found


def visible_group(decoded: DecodedGroup, hidden: Sequence[HiddenSeries]) -> DecodedGroup:
    """The row group without hidden samples. Runs that lose all samples vanish."""
    samples = decoded.samples.tight()
    lengths = np.diff(samples.offsets)
    gone = hidden_mask(hidden, np.repeat(samples.tids, lengths), samples.timestamps_ms)
    if not gone.any():
        return decoded
    kept = ~gone
    left = np.add.reduceat(kept, samples.offsets[:-1]).astype(np.int64) if len(lengths) else lengths
    runs = np.flatnonzero(left)
    at = np.flatnonzero(kept)
    return DecodedGroup(
        Samples(
            samples.tids[runs],
            [],
            offsets_of(left[runs]),
            samples.timestamps_ms[at],
            samples.values[at],
            None if samples.start_timestamps_ms is None else samples.start_timestamps_ms[at],
            None if samples.histograms is None else with_rows(samples.histograms, samples.histograms.row[at]),
            samples.sumless,
            may_be_stale=samples.may_be_stale,
            rollup=None if samples.rollup is None else samples.rollup.at(at),
        )
    )


def visible_choice(
    opener: Opener,
    samples_key: str,
    table: SeriesTable,
    chosen: Chosen,
    hidden: Sequence[HiddenRows],
    tally: SampleTally,
) -> Chosen:
    """The chosen series that have a visible sample. Reads the times of all samples, but only while rows are hidden."""
    of_series = hidden_series(hidden, table)
    if not of_series:
        return chosen

    def read() -> Ints:
        seen = []
        with opener.samples(samples_key, tally) as opened:
            for group in opened.groups:
                read = opened.file.read_row_group(group.number, columns=["tid", "timestamp"], use_threads=False)
                tids, times = (_ints(read.column(name)) for name in ("tid", "timestamp"))
                seen.append(np.unique(tids[~hidden_mask(of_series, tids, times)]))
        return np.unique(np.concatenate(seen)) if seen else np.zeros(0, np.int64)

    visible = opener.again_if_bad(samples_key, read)
    stored = chosen.stored[contained(table.tids[chosen.stored], visible)]
    classic = {suffix: rows[contained(table.tids[rows], visible)] for suffix, rows in chosen.classic.items()}
    classic = {suffix: rows for suffix, rows in classic.items() if len(rows)}
    rows = np.unique(np.concatenate([stored, *classic.values()]))
    return replace(
        chosen,
        stored=stored,
        classic=classic,
        wanted=Wanted.of(table.names.codes[rows], table.names.values, table.tids[rows]),
        stored_tids=np.sort(table.tids[stored]),
        parent_tids={suffix: np.sort(table.tids[of_suffix]) for suffix, of_suffix in classic.items()},
    )


def visible_rows(read: pa.Table, hidden: Sequence[HiddenSeries]) -> pa.Table:
    """Rows with the columns tid and timestamp, without the hidden ones."""
    if not hidden:
        return read
    gone = hidden_mask(hidden, _ints(read.column("tid")), _ints(read.column("timestamp")))
    return read.filter(pa.array(~gone))


def _ints(column: pa.ChunkedArray) -> Ints:
    array = column.combine_chunks()
    numbers: Ints = (array.view(pa.int64()) if pa.types.is_timestamp(array.type) else array).to_numpy()
    return numbers
