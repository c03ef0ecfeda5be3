"""Scans one segment: chooses series, reads their samples, adds labels and expands classic histograms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from lakerunner.model.hidden import HiddenRows
from lakerunner.query.scan.samples.classic import choose_classic, expand
from lakerunner.query.scan.samples.decoded import ClassicGroup, DecodedGroup, choose, contained
from lakerunner.query.scan.samples.hidden import hidden_series, visible_group
from lakerunner.query.scan.samples.opened import Opener, SampleTally
from lakerunner.query.scan.samples.row_groups import RowGroup, Wanted
from lakerunner.query.scan.samples.row_groups import choose as choose_groups
from lakerunner.query.scan.samples.runs import Samples, within
from lakerunner.query.scan.samples.series_table import SeriesTable, TableLabels
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import Need

#: Called with the bytes that this scan holds. Raises if they are too many, or if the answer is no longer wanted.
Spend = Callable[[int], None]


def scan_samples(
    opener: Opener,
    keys: Sequence[str],
    matchers: Sequence[Matcher],
    spans: Sequence[tuple[int, int]],
    spend: Spend,
    tally: SampleTally,
    need: Need | None = None,
    hidden: Sequence[HiddenRows] = (),
) -> list[Samples]:
    """All samples of the segment's matching series, classic series of histograms included.

    `spans` are the times to read, in milliseconds, both ends included. With a `need`, the segment is of a tier, and the
    samples come with the aggregates that it asks for. A series may be in several of the returned parts; `merge` joins
    them.
    """
    samples_key, series_key = keys
    check = partial(spend, 0)
    table = opener.series(series_key, tally)
    chosen = table.choose(tuple(matchers), check)
    if not len(chosen.wanted.tids):
        return []
    if need is Need.SKETCH and chosen.classic:
        # Sketches of numbers say nothing of the classic series of a histogram: these are marked below.
        need = Need.MIN
    gone = hidden_series(hidden, table)

    def read() -> list[Samples]:
        parts: list[Samples] = []
        held_bytes = 0
        with opener.samples(samples_key, tally) as opened:
            for group, span in _read_groups(opened.groups, chosen.wanted, spans):
                spend(held_bytes)
                decoded = opened.read(group, need)
                if gone:
                    decoded = visible_group(decoded, gone)
                cut = _cut(group, *span)
                found = [_stored(decoded, table, chosen.stored_tids, cut)] if len(chosen.stored) else []
                found += [
                    choose_classic(_classic(decoded, table, suffix), tids, matchers, *cut, check)
                    for suffix, tids in chosen.parent_tids.items()
                ]
                found = found if need is None else _marked(found, need, stored=bool(len(chosen.stored)))
                parts += [part for part in found if len(part)]
                held_bytes += sum(part.size_bytes for part in found)
        spend(held_bytes)
        return parts

    return opener.again_if_bad(samples_key, read)


def _read_groups(
    groups: list[RowGroup], wanted: Wanted, spans: Sequence[tuple[int, int]]
) -> Iterable[tuple[RowGroup, tuple[int, int]]]:
    """The row groups to read for each span. Usually there is one span."""
    for span in spans:
        yield from ((group, span) for group in choose_groups(groups, wanted, *span))


def _marked(found: list[Samples], need: Need, *, stored: bool) -> list[Samples]:
    """Mark the parts whose aggregates are not those of their samples.

    A tier has no sums of histograms, and the aggregates of a histogram are not those of its classic series.
    """
    if need not in (Need.SUM, Need.MIN, Need.MAX):
        return found
    return [
        _underivable(part)
        if len(part) and (number or not stored or (need is Need.SUM and _has_histograms(part)))
        else part
        for number, part in enumerate(found)
    ]


def _underivable(part: Samples) -> Samples:
    return part if part.rollup is None else replace(part, rollup=replace(part.rollup, derivable=False))


def _has_histograms(part: Samples) -> bool:
    if part.histograms is None:
        return False
    return bool((part.histograms.row[within(part.places, np.diff(part.offsets))] >= 0).any())


def _cut(group: RowGroup, start_ms: int, end_ms: int) -> tuple[int | None, int | None]:
    """The ends of the time range that clip the group; None for an end that no row lies beyond."""
    if group.times_ms is None:
        return start_ms, end_ms
    first, last = group.times_ms
    return (start_ms if first < start_ms else None), (end_ms if last > end_ms else None)


def _stored(decoded: DecodedGroup, table: SeriesTable, tids: Ints, cut: tuple[int | None, int | None]) -> Samples:
    """The samples of stored series."""
    whole = decoded.samples
    part, _ = choose(whole, contained(whole.tids, tids), *cut)
    return replace(part, labels=TableLabels(table, part.tids))


def _classic(decoded: DecodedGroup, table: SeriesTable, suffix: str) -> ClassicGroup:
    """The classic series of all histograms of the group, cached as long as the group is in memory."""
    made = decoded.classic.get(suffix)
    if made is None:
        labels = table.label_sets(table.rows_of(decoded.samples.tids))
        made = decoded.classic[suffix] = expand(decoded.samples, labels, suffix)
    return made
