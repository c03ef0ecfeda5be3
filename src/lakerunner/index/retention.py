"""Retention: how long an org keeps a signal and tier, and ending the live segments that are older."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakerunner.index.deletion_end import end_pending
from lakerunner.index.rollup_windows import forget_windows, seal, share_windows
from lakerunner.index.rule_holes import record_gone
from lakerunner.index.segments import SegmentRef
from lakerunner.model.errors import BadInput
from lakerunner.model.segment import RAW_TIER_S
from lakerunner.model.signals import METRICS, SIGNALS
from lakerunner.model.time import TimeRange
from lakerunner.runtime.settings import RetentionSettings

if TYPE_CHECKING:
    from lakerunner.index.database import Connection

#: Names of the tiers of a signal that rolls up, by their width.
TIERS = {"10s": 10, "1m": 60, "5m": 300, "1h": 3_600, "1d": 86_400}
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([smhdwy])")
#: Windows of an expired tier that are forgotten with one batch of its segments.
_WINDOWS = 10_000
#: Words for "keep it forever".
_EVER = ("0", "forever", "ever")


@dataclass(frozen=True, slots=True, order=True)
class Kept:
    """What has a retention of its own: a signal, and for metrics a tier."""

    signal: str
    tier_s: int = RAW_TIER_S

    def __str__(self) -> str:
        tier = next((name for name, width_s in TIERS.items() if width_s == self.tier_s), None)
        return self.signal if tier is None else f"{self.signal}.{tier}"


#: Everything that has a retention, in the order in which it is shown.
ALL_KEPT: tuple[Kept, ...] = tuple(
    Kept(signal.name, tier_s)
    for signal in SIGNALS
    for tier_s in ((RAW_TIER_S, *TIERS.values()) if signal.rolls_up else (RAW_TIER_S,))
)
_BY_NAME = {str(kept): kept for kept in ALL_KEPT}


@dataclass(frozen=True, slots=True)
class Expired:
    """A segment that is older than its retention."""

    ref: SegmentRef
    org_id: uuid.UUID
    kept: Kept
    time_range: TimeRange
    row_count: int
    size_bytes: int


def kept_named(name: str) -> Kept:
    """The signal, or signal and tier, of this name.

    >>> kept_named("metrics.5m")
    Kept(signal='metrics', tier_s=300)
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise BadInput(
            f"cannot find {name[:50]!r} to keep", hint=f"name one of {', '.join(_BY_NAME)}, as in logs=30d"
        ) from None


def read_length(text: str) -> float:
    """A length of time in seconds; 0 means forever.

    >>> read_length("1.5d"), read_length("forever"), read_length("2h30m")
    (129600.0, 0.0, 9000.0)
    """
    if text.strip().lower() in _EVER:
        return 0.0
    parts = list(_LENGTH.finditer(text.strip()))
    if not parts or "".join(part[0] for part in parts) != text.strip():
        raise BadInput(f"cannot read {text[:50]!r} as a length of time", hint="write 30d, 12h, 1y or forever")
    return sum(float(part[1]) * _UNITS_S[part[2]] for part in parts)


def default_keep_s(settings: RetentionSettings) -> dict[Kept, float]:
    """What the settings say for every org."""
    tier_of = {width_s: name for name, width_s in TIERS.items()}
    names = {
        kept: f"{kept.signal}_{tier_of[kept.tier_s]}_s" if kept.tier_s else f"{kept.signal}_s" for kept in ALL_KEPT
    }
    return {kept: float(getattr(settings, name)) for kept, name in names.items()}


def own_keep_s(tx: Connection, org_id: uuid.UUID) -> dict[Kept, float]:
    """What is set for the org itself."""
    rows = tx.execute("SELECT signal, tier_s, keep_s FROM org_retention WHERE org_id = %s", [org_id]).fetchall()
    return {Kept(row["signal"], row["tier_s"]): row["keep_s"] for row in rows}


def set_keep(tx: Connection, org_id: uuid.UUID, keep_s: Mapping[Kept, float]) -> None:
    for kept, value in keep_s.items():
        tx.execute(
            "INSERT INTO org_retention (org_id, signal, tier_s, keep_s) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (org_id, signal, tier_s) DO UPDATE SET keep_s = excluded.keep_s, set_at = now()",
            [org_id, kept.signal, kept.tier_s, value],
        )


def unset_keep(tx: Connection, org_id: uuid.UUID, names: Sequence[Kept]) -> None:
    """Remove what is set for the org, so that the settings apply again."""
    for kept in names:
        tx.execute(
            "DELETE FROM org_retention WHERE org_id = %s AND signal = %s AND tier_s = %s",
            [org_id, kept.signal, kept.tier_s],
        )


def retentions(tx: Connection, settings: RetentionSettings) -> list[tuple[uuid.UUID, Kept, float]]:
    """Everything that is not kept forever: org, what, and for how long. Orgs are those that ever had a segment."""
    defaults = default_keep_s(settings)
    orgs = tx.execute(
        "SELECT DISTINCT org_id FROM (SELECT org_id FROM tally WHERE subject = 'segment'"
        " UNION ALL SELECT org_id FROM tally_delta WHERE subject = 'segment') AS t ORDER BY org_id"
    ).fetchall()
    own: dict[uuid.UUID, dict[Kept, float]] = {}
    for row in tx.execute("SELECT org_id, signal, tier_s, keep_s FROM org_retention").fetchall():
        own.setdefault(row["org_id"], {})[Kept(row["signal"], row["tier_s"])] = row["keep_s"]
    found = []
    for org_id in (row["org_id"] for row in orgs):
        for kept in ALL_KEPT:
            keep_s = own.get(org_id, {}).get(kept, defaults[kept])
            if keep_s:
                found.append((org_id, kept, keep_s))
    return found


_EXPIRED = (
    "SELECT dateint, segment_id, start_ns, end_ns, row_count, size_bytes FROM segment WHERE org_id = %(org)s"
    " AND signal = %(signal)s AND tier_s = %(tier)s AND state = 'live'"
    " AND end_ns <= ((extract(epoch FROM now()) - %(keep)s) * 1e9)::bigint ORDER BY end_ns, segment_id LIMIT %(limit)s"
)


def expired(tx: Connection, org_id: uuid.UUID, kept: Kept, keep_s: float, limit: int) -> list[Expired]:
    """The live segments all of whose rows are older, the oldest first."""
    terms = {"org": org_id, "signal": kept.signal, "tier": kept.tier_s, "keep": keep_s, "limit": limit}
    return [_expired(org_id, kept, row) for row in tx.execute(_EXPIRED, terms).fetchall()]


def end_expired(tx: Connection, org_id: uuid.UUID, kept: Kept, keep_s: float, limit: int) -> list[Expired]:
    """End live segments all of whose rows are older. From the commit on, no new query sees them."""
    if kept.signal == METRICS.name:
        share_windows(tx, org_id)
    rows = tx.execute(
        "UPDATE segment s SET state = 'deleted', superseded_at = now(), deleted_at = now(), end_reason = %(reason)s"  # noqa: S608
        f" FROM ({_EXPIRED} FOR UPDATE SKIP LOCKED) AS old"
        " WHERE s.dateint = old.dateint AND s.segment_id = old.segment_id AND s.state = 'live'"
        " RETURNING s.dateint, s.segment_id, s.start_ns, s.end_ns, s.row_count, s.size_bytes",
        {
            "org": org_id,
            "signal": kept.signal,
            "tier": kept.tier_s,
            "keep": keep_s,
            "limit": limit,
            "reason": f"older than {keep_s:g} s",
        },
    ).fetchall()
    found = [_expired(org_id, kept, row) for row in rows]
    end_pending(tx, [each.ref for each in found])
    if found and kept.tier_s == RAW_TIER_S:
        before_ns = max(each.time_range.end_ns for each in found)
        record_gone(tx, org_id, kept.signal, 0, before_ns, f"{kept.signal} have expired")
    if found and kept.signal == METRICS.name:
        before_ns = max(each.time_range.end_ns for each in found)
        # What was made of these samples is kept as it is, and never made again from nothing.
        seal(tx, org_id, kept.tier_s, before_ns)
        if kept.tier_s:
            forget_windows(tx, org_id, kept.tier_s, before_ns, _WINDOWS)
    return found


def _expired(org_id: uuid.UUID, kept: Kept, row: Mapping[str, int]) -> Expired:
    ref = SegmentRef(row["dateint"], row["segment_id"])  # type: ignore[arg-type]
    return Expired(ref, org_id, kept, TimeRange(row["start_ns"], row["end_ns"]), row["row_count"], row["size_bytes"])
