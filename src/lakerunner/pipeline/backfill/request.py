"""Requesting a backfill: announce the segments that rules have not seen, and see how many are left."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from lakerunner.bus.announce import segments_made
from lakerunner.index import outbox
from lakerunner.index.database import Database
from lakerunner.index.rule_catalog import find_rule, live_rules, unevaluated
from lakerunner.model.segment import Segment
from lakerunner.model.signals import METRICS
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.backfill.remake import NAME
from lakerunner.runtime.crash import crash_point

#: Segments that are announced at a time. The rest follows when these are done.
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Left:
    """What is still to be evaluated."""

    segments: int = 0
    rows: int = 0
    size_bytes: int = 0


def wanted_versions(database: Database, org_id: uuid.UUID, rule: str | None) -> dict[str, int]:
    """Signal -> the version of the catalog that its segments must have; of one rule, or of all."""
    with database.transaction() as tx:
        rules = [find_rule(tx, org_id, rule)] if rule else live_rules(tx, org_id)
    versions: dict[str, int] = {}
    # Samples of metrics are evaluated when they come. What was there before is not evaluated later.
    for each in (each for each in rules if each.signal != METRICS.name):
        versions[each.signal] = max(versions.get(each.signal, 0), each.since_version)
    return versions


def left(database: Database, org_id: uuid.UUID, versions: dict[str, int], time_range: TimeRange) -> Left:
    found = _unevaluated(database, org_id, versions, time_range)
    return Left(len(found), sum(each.row_count for each in found), sum(each.size_bytes for each in found))


def announce(database: Database, org_id: uuid.UUID, versions: dict[str, int], time_range: TimeRange) -> int:
    """Announce the latest segments of the range that are not up to date; return how many. Announcing twice is safe."""
    found = _unevaluated(database, org_id, versions, time_range)[:_BATCH]
    with database.transaction() as tx:
        outbox.put(tx, segments_made(found, [NAME]))
    crash_point("backfill_announced")
    return len(found)


def _unevaluated(
    database: Database, org_id: uuid.UUID, versions: dict[str, int], time_range: TimeRange
) -> list[Segment]:
    with database.transaction() as tx:
        return [
            segment
            for signal, version in sorted(versions.items())
            for segment in unevaluated(tx, org_id, signal, time_range, version)
        ]
