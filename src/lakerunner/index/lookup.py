"""Find the live segments for a query plan: of several signals and time ranges, in one statement."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import LiteralString

from lakerunner.index.database import Connection
from lakerunner.index.prepared_read import (
    BIGINT,
    INT,
    INTS,
    TEXT,
    UUID,
    PreparedRead,
    Value,
    identity,
    integer,
)
from lakerunner.index.rule_coverage import (
    CoverageQuestion,
    CoverageRange,
    Uncovered,
    UncoveredRow,
    read_row,
)
from lakerunner.index.segments import SELECT_SEGMENTS, SegmentRef, days_of, segment_of_row
from lakerunner.index.watermark import WATERMARK_MS
from lakerunner.model.segment import RAW_TIER_S, UNDATED, Segment
from lakerunner.model.signals import signal_named
from lakerunner.model.signals.tiers import TIERS_S
from lakerunner.model.time import NS_PER_DAY, TimeRange

_NO_WINDOW: LiteralString = (
    "NULL::int AS tier_s, NULL::bigint AS start_ns, NULL::bigint AS end_ns, NULL::boolean AS sealed"
)
_SELECT_REFS: LiteralString = "SELECT s.dateint, s.segment_id FROM segment s WHERE s.org_id = %s AND s.state = 'live'"
_NEITHER: LiteralString = "NULL::bigint AS watermark_ms, NULL::uuid AS deletion_id"
#: By the coarsest tier of a want. Written out, because an array as a parameter takes longer than the lookup.
_OVERLAPS: dict[int, LiteralString] = {
    RAW_TIER_S: "(s.signal = %s AND s.tier_s = 0 AND s.start_ns < %s AND s.end_ns > %s)",
    10: "(s.signal = %s AND s.tier_s IN (0, 10) AND s.start_ns < %s AND s.end_ns > %s)",
    60: "(s.signal = %s AND s.tier_s IN (0, 10, 60) AND s.start_ns < %s AND s.end_ns > %s)",
    300: "(s.signal = %s AND s.tier_s IN (0, 10, 60, 300) AND s.start_ns < %s AND s.end_ns > %s)",
    3_600: "(s.signal = %s AND s.tier_s IN (0, 10, 60, 300, 3600) AND s.start_ns < %s AND s.end_ns > %s)",
    86_400: "(s.signal = %s AND s.tier_s IN (0, 10, 60, 300, 3600, 86400) AND s.start_ns < %s AND s.end_ns > %s)",
}
#: Looked at for queries of raw samples too: where these are sealed, raw samples may be gone.
_SEALED_TIERS_S = [300, 3_600, 86_400]
#: Clean windows that follow each other are one stretch, so that a month of them is a few rows.
_STRETCHES: LiteralString = (
    "SELECT NULL, NULL, tier_s, lower(stretch), upper(stretch), sealed, NULL, NULL FROM"
    " (SELECT w.tier_s, w.sealed, unnest(range_agg(int8range(w.start_ns, w.end_ns))) AS stretch FROM rollup_window w"
    " WHERE w.org_id = %s AND NOT w.dirty AND (w.tier_s = ANY(%s::int[]) OR w.sealed AND w.tier_s = ANY(%s::int[]))"
    " AND w.end_ns >= %s AND w.start_ns < %s GROUP BY w.tier_s, w.sealed) AS stretches"
)
#: Parameters: the org, and its signals with commas between them. Without open deletions, it reads a page of an index.
_HIDDEN: LiteralString = (
    f"SELECT s.dateint, s.segment_id, {_NO_WINDOW}, NULL::bigint, d.deletion_id FROM deletion d"  # noqa: S608
    " JOIN deletion_segment s ON s.deletion_id = d.deletion_id AND s.state = 'pending'"
    " WHERE d.org_id = %s AND d.signal = ANY(string_to_array(%s, ',')) AND d.state IN ('pending', 'running')"
)
#: Raw segments whose objects are missing in the bucket. The column of the watermark has the number of their signal.
#: Parameters: that number, the org, the signal, start and end, first and last day. Nearly always, it reads a page of an
#: empty index. Lost segments of tiers are not looked for: the rollup makes them again.
_LOST: LiteralString = (
    "SELECT s.dateint, s.segment_id, NULL::int, s.start_ns, s.end_ns, NULL::boolean, %s::bigint, NULL::uuid"
    " FROM segment s WHERE s.org_id = %s AND s.state = 'lost' AND s.signal = %s AND s.tier_s = 0 AND s.end_ns > %s"
    " AND s.start_ns < %s AND (s.dateint BETWEEN %s AND %s OR s.dateint = 0)"
)


@dataclass(frozen=True, slots=True)
class Lost:
    """A raw segment that should be there, and whose objects are missing in the bucket."""

    signal: str
    segment_id: uuid.UUID
    time_range: TimeRange


@dataclass(frozen=True, slots=True)
class Want:
    """A request for the segments of one signal that overlap a time range, raw ones and those of tiers up to one."""

    signal: str
    time_range: TimeRange
    tier_s: int = RAW_TIER_S

    @property
    def tiers_s(self) -> tuple[int, ...]:
        return (RAW_TIER_S, *(tier_s for tier_s in TIERS_S if tier_s <= self.tier_s))


@dataclass(frozen=True, slots=True)
class Found:
    """What one snapshot of the index has for some wants."""

    #: Of each segment its day and its id, as PostgreSQL sends them: most lookups find the same segments as the last.
    raw_refs: list[tuple[bytes, bytes]]
    #: What arrived before it is in the segments.
    watermark_ms: int | None
    #: Where the windows of tiers are clean: the tier, start and end in nanoseconds, and whether raw rows have expired.
    stretches: list[tuple[int, int, int, bool]]
    #: Segment -> the open deletions that hide rows of it.
    hidden: dict[uuid.UUID, list[uuid.UUID]] = field(default_factory=dict)
    #: Segments whose rows are missing from every answer.
    lost: list[Lost] = field(default_factory=list)

    @property
    def refs(self) -> list[SegmentRef]:
        return [SegmentRef(integer(day), identity(segment_id)) for day, segment_id in self.raw_refs]

    @property
    def name(self) -> bytes:
        """The same for the same segments in the same order, and for no others."""
        return b"".join([segment_id for _, segment_id in self.raw_refs])


def live_refs(tx: Connection, org_id: uuid.UUID, wants: Sequence[Want]) -> list[SegmentRef]:
    """Return all live segments that match any want, in one statement and so from one snapshot.

    Only references: a segment never changes, so callers cache segments and load only new ones with `load_segments`.
    """
    if not wants:
        return []
    statement, values = _select_refs(org_id, wants)
    return [SegmentRef(row["dateint"], row["segment_id"]) for row in tx.execute(statement, values).fetchall()]


def find(tx: Connection, org_id: uuid.UUID, wants: Sequence[Want]) -> Found:
    """What `live_refs` returns, with the watermark of the signals, clean windows of tiers, hidden rows, and losses."""
    if len(wants) == 1 and wants[0].tier_s == RAW_TIER_S and not signal_named(wants[0].signal).rolls_up:
        return _found(_FIND_ROWS.rows(tx, _row_values(org_id, wants[0])), (wants[0].signal,))
    shape, values, names = _lookup(org_id, wants)
    return _found(_find_all(shape).rows(tx, values), names)


def find_covered(
    tx: Connection, org_id: uuid.UUID, wants: Sequence[Want], asked: Sequence[CoverageRange]
) -> tuple[Found, list[list[Uncovered]]]:
    """The same, with the coverage of rules: one statement sees one snapshot, and takes no transaction around it."""
    question = CoverageQuestion(org_id, asked)
    if not question.groups:
        return find(tx, org_id, wants), question.answer([])
    shape, values, names = _lookup(org_id, wants)
    segments: list[list[Value]] = []
    uncovered: list[tuple[int, UncoveredRow]] = []
    for *row, rule_id, reason in _find_covered(shape, question.groups).rows(tx, [*values, *question.values()]):
        if rule_id is None:
            segments.append(row)
        else:
            _, _, number, start_ns, end_ns, _, version, _ = row
            assert number is not None
            uncovered.append((integer(number), read_row(start_ns, end_ns, version, rule_id, reason)))
    return _found(segments, names), question.answer(uncovered)


#: The coarsest tier of each want, how many signals they have, and whether one of these has tiers.
_Shape = tuple[tuple[int, ...], int, bool]


def _lookup(org_id: uuid.UUID, wants: Sequence[Want]) -> tuple[_Shape, list[object], list[str]]:
    """What the statement looks like, its parameters, and the signals."""
    _, values = _select_refs(org_id, wants)
    names = list(dict.fromkeys(want.signal for want in wants))
    signals = ",".join(names)
    values += [org_id, signals, org_id, signals]
    for number, name in enumerate(names):
        hull = _hull([want.time_range for want in wants if want.signal == name])
        values += [number, org_id, name, hull.start_ns, hull.end_ns, *days_of(hull)]
    rolled = [want for want in wants if signal_named(want.signal).rolls_up]
    if rolled:
        hull = _hull([want.time_range for want in rolled])
        tiers = list(max(want.tiers_s for want in rolled))
        values += [org_id, tiers, _SEALED_TIERS_S, hull.start_ns, hull.end_ns]
    return (tuple(want.tier_s for want in wants), len(names), bool(rolled)), values, names


def _found(rows: Sequence[Sequence[Value]], names: Sequence[str]) -> Found:
    found = Found([], None, [])
    watermark_ms = None
    for day, segment_id, tier_s, start_ns, end_ns, sealed, number_or_ms, deletion_id in rows:
        if segment_id is not None and deletion_id is not None:
            found.hidden.setdefault(identity(segment_id), []).append(identity(deletion_id))
        elif segment_id is not None and start_ns is not None and end_ns is not None and number_or_ms is not None:
            times = TimeRange(integer(start_ns), integer(end_ns))
            found.lost.append(Lost(names[integer(number_or_ms)], identity(segment_id), times))
        elif segment_id is not None and day is not None:
            found.raw_refs.append((day, segment_id))
        elif tier_s is not None and start_ns is not None and end_ns is not None:
            found.stretches.append((integer(tier_s), integer(start_ns), integer(end_ns), sealed == b"\1"))
        else:
            watermark_ms = None if number_or_ms is None else integer(number_or_ms)
    return found if watermark_ms is None else replace(found, watermark_ms=watermark_ms)


def _row_values(org_id: uuid.UUID, want: Want) -> list[object]:
    """The parameters of `_FIND_ROWS`."""
    times = want.time_range
    first, last = days_of(times)
    return [org_id, first, last, want.signal, times.end_ns, times.start_ns, times.end_ns + NS_PER_DAY, UNDATED, 0]


@lru_cache(maxsize=256)
def _find_all(shape: _Shape) -> PreparedRead:
    """What `find` asks. One statement is one round trip and one snapshot."""
    return PreparedRead(*_find_statement(shape))


@lru_cache(maxsize=256)
def _find_covered(shape: _Shape, groups: int) -> PreparedRead:
    statement, types = _find_statement(shape)
    uncovered, uncovered_types = CoverageQuestion.statement(groups)
    return PreparedRead(
        f"SELECT found.*, NULL::bigint AS rule_id, NULL::text AS reason FROM ({statement}) AS found"  # noqa: S608
        " UNION ALL SELECT NULL, NULL, number, start_ns, end_ns, NULL, rules_version, NULL, rule_id, reason"
        f" FROM ({uncovered}) AS uncovered",
        [*types, *uncovered_types],
    )


def _find_statement(shape: _Shape) -> tuple[LiteralString, list[int]]:
    """The statement for wants of this shape, and the types of its parameters."""
    tiers_s, signals, rolled = shape
    statement, types = _refs_statement(tiers_s)
    parts: list[LiteralString] = [
        f"SELECT dateint, segment_id, {_NO_WINDOW}, {_NEITHER} FROM ({statement}) AS refs",  # noqa: S608
        f"SELECT NULL, NULL, {_NO_WINDOW}, watermark_ms, NULL FROM ({WATERMARK_MS}) AS least",  # noqa: S608
        _HIDDEN,
        *([_LOST] * signals),
    ]
    types += [UUID, TEXT, UUID, TEXT, *([BIGINT, UUID, TEXT, BIGINT, BIGINT, INT, INT] * signals)]
    if rolled:
        parts.append(_STRETCHES)
        types += [UUID, INTS, INTS, BIGINT, BIGINT]
    return " UNION ALL ".join(parts), types


def _hull(ranges: Sequence[TimeRange]) -> TimeRange:
    return TimeRange(min(each.start_ns for each in ranges), max(each.end_ns for each in ranges))


def _select_refs(org_id: uuid.UUID, wants: Sequence[Want]) -> tuple[LiteralString, list[object]]:
    """The statement and its parameters.

    They are scalars: preparing six arrays takes psycopg longer than PostgreSQL takes to answer. With the bounds of the
    days, PostgreSQL skips the partitions of other days. An undated segment may lie anywhere. It has a statement of its
    own: as a condition of one statement, `OR dateint = 0` made PostgreSQL read the keys of all orgs' segments of those
    days (1.09 ms instead of 0.06 ms for an hour among a million segments, and 151 buffers instead of 9; 2026-11).
    """
    days = [days_of(want.time_range) for want in wants]
    first, last = min(first for first, _ in days), max(last for _, last in days)
    bounds = [(want.signal, want.time_range.end_ns, want.time_range.start_ns) for want in wants]
    # A dated segment is at most a day wide, so none that starts in the range ends later than this.
    dated_bounds = [(*bound, min(bound[1] + NS_PER_DAY, (1 << 63) - 1)) for bound in bounds]
    values = [org_id, first, last, *chain.from_iterable(dated_bounds), org_id, UNDATED, *chain.from_iterable(bounds)]
    return _refs_statement(tuple(want.tier_s for want in wants))[0], values


def _refs_statement(tiers_s: Sequence[int]) -> tuple[LiteralString, list[int]]:
    """The statement for wants up to these tiers, and the types of its parameters."""
    overlaps = [_OVERLAPS[tier_s] for tier_s in tiers_s]
    dated = [f"({overlap} AND s.end_ns <= %s)" for overlap in overlaps]
    statement = (
        f"{_SELECT_REFS} AND s.dateint BETWEEN %s AND %s AND ({' OR '.join(dated)})"
        f" UNION ALL {_SELECT_REFS} AND s.dateint = %s AND ({' OR '.join(overlaps)})"
    )
    of_want = [TEXT, BIGINT, BIGINT]
    return statement, [UUID, INT, INT, *([*of_want, BIGINT] * len(tiers_s)), UUID, INT, *(of_want * len(tiers_s))]


#: The same for one want of a signal without tiers, as nearly all log queries have: 9 parameters are sent, not 23. They
#: are the org, the first and the last day, the signal, end, start, the latest end, the day of undated segments, and 0.
_FIND_ROWS = PreparedRead(
    _find_statement(((RAW_TIER_S,), 1, False))[0],
    [UUID, INT, INT, TEXT, BIGINT, BIGINT, BIGINT, INT, BIGINT],
    [0, 1, 2, 3, 4, 5, 6, 0, 7, 3, 4, 5, 0, 3, 0, 3, 8, 0, 3, 5, 4, 1, 2],
)


def load_segments(tx: Connection, refs: Sequence[SegmentRef]) -> list[Segment]:
    """What those segments are, whatever their state."""
    rows = tx.execute(
        SELECT_SEGMENTS + " JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[ref.dateint for ref in refs], [ref.segment_id for ref in refs]],
    ).fetchall()
    return [segment_of_row(row) for row in rows]


def load_id_filters(tx: Connection, refs: Sequence[SegmentRef]) -> dict[uuid.UUID, bytes]:
    """Return the id filter of each segment; empty bytes for one that has none, and so may hold every id."""
    rows = tx.execute(
        "SELECT s.segment_id, s.id_filter FROM segment s JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
        " ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[ref.dateint for ref in refs], [ref.segment_id for ref in refs]],
    ).fetchall()
    return {row["segment_id"]: bytes(row["id_filter"] or b"") for row in rows}
