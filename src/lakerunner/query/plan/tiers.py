"""Cuts the time of a leaf into pieces by tier: everywhere the coarsest tier that gives the same answer.

A tier may be read where its windows are clean in the query's own snapshot of the index: then its segments hold all raw
rows of that time. Elsewhere, finer tiers are tried, and at last raw samples.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.signals.tiers import TIERS_S
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.plan.leaf import Leaf, Piece
from lakerunner.query.series.reading import Need

#: Open at the start, closed at the end, as windows and buckets are; in milliseconds.
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TierStretch:
    """A stretch of time in which the windows of a tier are clean, in nanoseconds. Open at the start.

    Sealed: raw samples are gone by retention, and the tier is what is left.
    """

    tier_s: int
    start_ns: int
    end_ns: int
    sealed: bool = False

    @property
    def interval_ms(self) -> Interval:
        return self.start_ns // NS_PER_MS, self.end_ns // NS_PER_MS


@dataclass(frozen=True, slots=True)
class TierChoice:
    """Where a leaf reads which tier, in order of time, and sentences that say why."""

    #: None: raw samples for the whole leaf.
    pieces: tuple[Piece, ...] = ()
    reasons: tuple[str, ...] = ()
    #: What the answer misses, because raw samples are gone where it needs them.
    missed: tuple[str, ...] = ()

    @property
    def tiers_s(self) -> frozenset[int]:
        return frozenset(piece.tier_s for piece in self.pieces) or frozenset({RAW_TIER_S})


def choose_tiers(leaf: Leaf, stretches: Sequence[TierStretch], raw: Sequence[Segment] = ()) -> TierChoice:
    """The coarsest tier for every part of the leaf's time. `raw`: the segments of raw samples that there still are."""
    reading = leaf.reading
    if reading.need in (Need.SERIES, Need.EXEMPLARS):
        return _where_raw_has_expired(leaf, stretches)
    width_ms = max(1, reading.tier_s * 1000)
    # An instant selector begins to look back inside a bucket. Its windows, and the ends of others, are whole buckets.
    whole: Interval = ((leaf.start_ms - 1) // width_ms * width_ms, leaf.end_ms)
    left = [whole]
    found: list[Piece] = []
    reasons: list[str] = []
    for tier_s in sorted((tier_s for tier_s in TIERS_S if tier_s <= reading.tier_s), reverse=True):
        clean = _united([stretch.interval_ms for stretch in stretches if stretch.tier_s == tier_s])
        taken = _common(left, clean)
        left = _without(left, taken)
        found += [Piece(tier_s, start_ms + 1, end_ms) for start_ms, end_ms in taken]
        reasons += [f"the {_tier(tier_s)} {times_text(each)}" for each in taken]
        if not left:
            break
    unclean = "no window of a tier is complete there" if reading.tier_s else reading.why
    reasons += [f"raw samples {times_text(each)}: {unclean}" for each in left]
    if found and reading.why:
        reasons.append(f"no tier coarser than {_tier(reading.tier_s)}: {reading.why}")
    if found and reading.need is Need.SKETCH:
        reasons.append("approximate: sketches of the tiers stand for samples, within 1%, as the query allows")
    missed = _missed(left, stretches, raw, unclean)
    if not found:
        return TierChoice((), tuple(reasons), missed)
    pieces = [*found, *(Piece(RAW_TIER_S, start_ms + 1, end_ms) for start_ms, end_ms in left)]
    return TierChoice(tuple(sorted(pieces, key=lambda piece: piece.start_ms)), tuple(reasons), missed)


def _where_raw_has_expired(leaf: Leaf, stretches: Sequence[TierStretch]) -> TierChoice:
    """Raw segments everywhere, and the finest tier where raw samples are gone, or some of them."""
    left: list[Interval] = [(leaf.start_ms - 1, leaf.end_ms)]
    pieces: list[Piece] = []
    reasons: list[str] = []
    missed: list[str] = []
    for tier_s in TIERS_S:
        sealed = _united([each.interval_ms for each in stretches if each.tier_s == tier_s and each.sealed])
        taken = _common(left, sealed)
        left = _without(left, taken)
        pieces += [Piece(tier_s, start_ms + 1, end_ms) for start_ms, end_ms in taken]
        reasons += [f"the {_tier(tier_s)} {times_text(each)}: raw samples have expired there" for each in taken]
        if leaf.reading.need is Need.EXEMPLARS:
            missed += [
                f"raw samples {times_text(each)} have expired, and with them their exemplars, but for those of the "
                f"samples that the {_tier(tier_s)} keeps"
                for each in taken
            ]
    if not pieces:
        return TierChoice()
    pieces.append(Piece(RAW_TIER_S, leaf.start_ms, leaf.end_ms))
    return TierChoice(tuple(sorted(pieces, key=lambda piece: piece.start_ms)), tuple(reasons), tuple(missed))


def _missed(
    left: Sequence[Interval], stretches: Sequence[TierStretch], raw: Sequence[Segment], why: str
) -> tuple[str, ...]:
    """Where raw samples are read, but retention has left nothing but tiers."""
    sealed = _united([stretch.interval_ms for stretch in stretches if stretch.sealed])
    if not sealed:
        return ()
    there = [segment.time_range for segment in raw if segment.tier_s == RAW_TIER_S]
    gone = _without(sealed, _united([(each.start_ns // NS_PER_MS - 1, each.end_ns // NS_PER_MS) for each in there]))
    kept = sorted({stretch.tier_s for stretch in stretches if stretch.sealed})
    tiers = " and ".join(map(_tier, kept))
    return tuple(
        f"raw samples {times_text(each)} have expired, and are missing from this answer: what is kept there, {tiers}, "
        f"cannot give it{f' ({why})' if why else ''}"
        for each in _common(left, gone)
    )


def _united(intervals: Sequence[Interval]) -> list[Interval]:
    """
    >>> _united([(5, 9), (0, 3), (3, 4), (8, 10)])
    [(0, 4), (5, 10)]
    """
    out: list[Interval] = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def _common(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """The intersection of two ascending lists.

    >>> _common([(0, 4), (6, 9)], [(1, 2), (3, 7)])
    [(1, 2), (3, 4), (6, 7)]
    """
    out: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            out.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return out


def _without(whole: Sequence[Interval], taken: Sequence[Interval]) -> list[Interval]:
    """
    >>> _without([(0, 4), (6, 9)], [(1, 2), (3, 4), (6, 7)])
    [(0, 1), (2, 3), (7, 9)]
    """
    out: list[Interval] = []
    for start, end in whole:
        for cut_start, cut_end in taken:
            if cut_end <= start or cut_start >= end:
                continue
            if cut_start > start:
                out.append((start, cut_start))
            start = cut_end
        if start < end:
            out.append((start, end))
    return out


def _tier(tier_s: int) -> str:
    """
    >>> _tier(60), _tier(86_400)
    ('1m tier', '1d tier')
    """
    for width_s, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if tier_s % width_s == 0:
            return f"{tier_s // width_s}{unit} tier"
    return f"{tier_s}s tier"


def times_text(interval: Interval) -> str:
    """
    >>> times_text((0, 1_500))
    'from 1970-01-01T00:00:00Z to 1970-01-01T00:00:01.500Z'
    """
    return f"from {_time(interval[0])} to {_time(interval[1])}"


def _time(ms: int) -> str:
    try:
        moment = dt.datetime.fromtimestamp(ms // 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{ms % 1000:03d}Z" if ms % 1000 else "Z")
