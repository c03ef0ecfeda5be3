"""Series that rules made, by day: what keeps a rule with unbounded dimensions at its limit in all tasks together.

Commits add the series of their samples. Once a day has more than the rule's `max_series`, it is full: tasks that begin
later count its rows in the overflow series. So a rule exceeds its limit by what ran at that moment, and not by more.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import LiteralString

from lakerunner.index.database import Connection
from lakerunner.model.series_of_day import SeriesOfDay, series_in, union

_SKETCHES: LiteralString = (
    "SELECT s.rule_id, s.day, s.sketch FROM rule_series s"
    " JOIN unnest(%s::bigint[], %s::int[]) AS k(rule_id, day) USING (rule_id, day) ORDER BY s.rule_id, s.day"
)


def note_series(tx: Connection, org_id: uuid.UUID, signal: str, made: Sequence[SeriesOfDay]) -> None:
    """Add series to those known. Nothing is written, or locked, where all are known."""
    known = _sketches(tx, made, lock=False)
    added = [each for each in made if _adds(each, known.get((each.rule_id, each.day)))]
    if not added:
        return
    # In order, so that commits wait for each other and do not deadlock.
    added.sort(key=lambda each: (each.rule_id, each.day))
    keys = [[each.rule_id for each in added], [each.day for each in added]]
    tx.execute(
        "INSERT INTO rule_series (rule_id, day, org_id, signal) SELECT k.rule_id, k.day, %s, %s"
        " FROM unnest(%s::bigint[], %s::int[]) AS k(rule_id, day) ORDER BY 1, 2 ON CONFLICT DO NOTHING",
        [org_id, signal, *keys],
    )
    known = _sketches(tx, added, lock=True)
    merged = [union([known[each.rule_id, each.day], each.sketch]) for each in added]
    tx.execute(
        "UPDATE rule_series s SET sketch = k.sketch, series = k.series, noted_at = now(), is_full = s.is_full"
        " OR k.series > (r.definition->>'max_series')::bigint"
        " FROM unnest(%s::bigint[], %s::int[], %s::bytea[], %s::bigint[]) AS k(rule_id, day, sketch, series)"
        " JOIN materialization_rule r USING (rule_id) WHERE s.rule_id = k.rule_id AND s.day = k.day",
        [*keys, merged, [series_in(each) for each in merged]],
    )


def _adds(made: SeriesOfDay, known: bytes | None) -> bool:
    return known is None or union([known, made.sketch]) != known


def _sketches(tx: Connection, made: Sequence[SeriesOfDay], *, lock: bool) -> dict[tuple[int, int], bytes]:
    rows = tx.execute(
        _SKETCHES + " FOR UPDATE OF s" if lock else _SKETCHES,
        [[each.rule_id for each in made], [each.day for each in made]],
    ).fetchall()
    return {(row["rule_id"], row["day"]): bytes(row["sketch"]) for row in rows}


def full_days(tx: Connection, org_id: uuid.UUID, signal: str) -> frozenset[tuple[int, int]]:
    """Rules and days whose further rows go to the overflow."""
    rows = tx.execute(
        "SELECT rule_id, day FROM rule_series WHERE org_id = %s AND signal = %s AND is_full", [org_id, signal]
    ).fetchall()
    return frozenset((row["rule_id"], row["day"]) for row in rows)


def forget_series(tx: Connection, keep_s: float, limit: int) -> int:
    """Forget days to which no series was added for so long."""
    return tx.execute(
        "DELETE FROM rule_series WHERE ctid IN (SELECT ctid FROM rule_series"
        " WHERE noted_at < now() - make_interval(secs => %s) ORDER BY noted_at LIMIT %s)",
        [keep_s, limit],
    ).rowcount
