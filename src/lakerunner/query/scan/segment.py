"""One segment, scanned: choose series, read their samples, name them, expand classic histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from lakerunner.query.promql.histogram import Ints
from lakerunner.query.promql.matchers import Matcher
from lakerunner.query.scan.classic import expand
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
) -> list[Samples]:
    """All samples of the segment's series that match, classic series of histograms included.

    In parts: a series may be in several of them, and `merge` puts it together.
    """
    samples_key, series_key = keys
    table = opener.series(series_key, tally)
    chosen = table.choose(matchers)
    rows = chosen.rows()
    if not len(rows):
        return []
    wanted = Wanted.of(table.names.codes[rows], table.names.values, table.tids[rows])

    def read() -> list[Samples]:
        with opener.samples(samples_key, tally) as opened:
            return _read(opened, wanted, start_ms, end_ms, spend)

    found = [_named(part, table) for part in opener.again_if_bad(samples_key, read)]
    if not chosen.classic:
        return found
    parts = [_of(part, table.tids[chosen.stored]) for part in found]
    for suffix, of_suffix in chosen.classic.items():
        parts += [expand(_of(part, table.tids[of_suffix]), suffix, matchers) for part in found]
        spend(sum(part.size_bytes for part in parts))
    return [part for part in parts if len(part)]


def _read(opened: OpenedFile, wanted: Wanted, start_ms: int, end_ms: int, spend: Spend) -> list[Samples]:
    groups = choose(opened.groups, wanted, start_ms, end_ms)
    # Time, value and start of each row; histograms are counted when they are there.
    parts = read_samples(opened, groups, wanted, start_ms, end_ms, lambda rows: spend(24 * rows))
    spend(sum(part.size_bytes for part in parts))
    return parts


def _named(samples: Samples, table: SeriesTable) -> Samples:
    return replace(samples, labels=table.label_sets(table.rows_of(samples.tids)))


def _of(samples: Samples, tids: Ints) -> Samples:
    return samples.of_series(np.flatnonzero(np.isin(samples.tids, tids)))
