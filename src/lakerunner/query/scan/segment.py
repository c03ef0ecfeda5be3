"""One segment, scanned: choose series, read their samples, name them, expand classic histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lakerunner.query.promql.matchers import Matcher
from lakerunner.query.scan.classic import expand
from lakerunner.query.scan.merge import concatenate
from lakerunner.query.scan.opened import OpenedFile, Opener, Tally
from lakerunner.query.scan.row_groups import Wanted, choose
from lakerunner.query.scan.samples import Samples
from lakerunner.query.scan.segment_samples import read_samples
from lakerunner.query.scan.series_table import SeriesTable

#: Told the bytes that this scan holds; raises when they are too many, or the answer is no longer wanted.
Spend = Callable[[int], None]


def scan_samples(
    opener: Opener,
    keys: Sequence[str],
    matchers: Sequence[Matcher],
    start_ms: int,
    end_ms: int,
    spend: Spend,
    tally: Tally,
) -> Samples:
    """All samples of the segment's series that match, classic series of histograms included, in no order of series."""
    samples_key, series_key = keys
    table = opener.series(series_key, tally)
    chosen = table.choose(matchers)
    rows = chosen.rows()
    if not len(rows):
        return Samples.none()
    names = [table.names.values[code] for code in table.names.codes[rows].tolist()]
    wanted = Wanted.of(names, table.tids[rows])

    def read() -> Samples:
        with opener.samples(samples_key, tally) as opened:
            return _read(opened, wanted, start_ms, end_ms, spend)

    found = _named(opener.again_if_bad(samples_key, read), table)
    if not chosen.classic:
        return found
    parts = [_of(found, table.tids[chosen.stored])]
    for suffix, of_suffix in chosen.classic.items():
        parts.append(expand(_of(found, table.tids[of_suffix]), suffix, matchers))
        spend(parts[-1].size_bytes)
    return _together(parts)


def _read(opened: OpenedFile, wanted: Wanted, start_ms: int, end_ms: int, spend: Spend) -> Samples:
    groups = choose(opened.groups, wanted, start_ms, end_ms)
    # Time, value and start of each row; histograms are counted when they are there.
    samples = read_samples(opened.file, groups, wanted, start_ms, end_ms, lambda rows: spend(24 * rows))
    spend(samples.size_bytes)
    return samples


def _named(samples: Samples, table: SeriesTable) -> Samples:
    order = np.argsort(table.tids)
    rows = order[np.searchsorted(table.tids, samples.tids, sorter=order)]
    return Samples(
        samples.tids,
        table.label_sets(rows),
        samples.offsets,
        samples.timestamps_ms,
        samples.values,
        samples.start_timestamps_ms,
        samples.histograms,
        samples.sumless,
    )


def _of(samples: Samples, tids: np.ndarray) -> Samples:
    return samples.of_series(np.flatnonzero(np.isin(samples.tids, tids)))


def _together(parts: Sequence[Samples]) -> Samples:
    """Stored and expanded series of one segment, one after another; `merge` sorts out what is there twice."""
    return concatenate([part for part in parts if len(part)])
