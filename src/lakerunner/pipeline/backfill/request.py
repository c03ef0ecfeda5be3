"""Requesting a backfill: announce the segments that rules have not seen, and see how many are left."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from lakerunner.bus.announce import segments_made
from lakerunner.index import outbox
from lakerunner.index.database import Database
from lakerunner.index.rule_catalog import find_rule, live_rules
from lakerunner.index.rule_versions import unevaluated
from lakerunner.model.errors import BadInput
from lakerunner.model.segment import Segment
from lakerunner.model.signals import METRICS
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.backfill.remake import NAME
from lakerunner.pipeline.backfill.unseen import is_derived
from lakerunner.runtime.crash import crash_point

#: Segments that are announced at a time. The rest follows when these are done.
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Left:
    """What is still to be evaluated."""

    segments: int = 0
    rows: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The version of the catalog that segments of a signal must have."""

    version: int = 0
    #: Of metrics: those that rules read, if any; and those among them that Lakerunner derives, which rules do not see.
    metrics: tuple[str, ...] | None = None
    derived: tuple[str, ...] = ()


def wanted_versions(database: Database, org_id: uuid.UUID, rule: str | None) -> dict[str, Wanted]:
    """By signal; of one rule, or of all."""
    with database.transaction() as tx:
        live = live_rules(tx, org_id)
        rules = [find_rule(tx, org_id, rule)] if rule else live
    names = {each.name for each in live}
    found: dict[str, Wanted] = {}
    for each in rules:
        metric = each.definition.get("metric")
        if metric is not None and is_derived(metric, names):
            if rule:
                raise BadInput(
                    f"cannot backfill the rule {rule}: it reads {metric}, which Lakerunner derives itself",
                    hint="rules over metrics see samples that were sent or recorded",
                )
            continue
        before = found.get(each.signal, Wanted())
        metrics = None if metric is None else tuple(sorted({*(before.metrics or ()), metric}))
        found[each.signal] = Wanted(max(before.version, each.since_version), metrics)
    if METRICS.name in found:
        read = {each.definition["metric"] for each in live if each.signal == METRICS.name}
        derived = tuple(sorted(metric for metric in read if is_derived(metric, names)))
        found[METRICS.name] = replace(found[METRICS.name], derived=derived)
    return found


def left(database: Database, org_id: uuid.UUID, versions: dict[str, Wanted], time_range: TimeRange) -> Left:
    found = _unevaluated(database, org_id, versions, time_range)
    return Left(len(found), sum(each.row_count for each in found), sum(each.size_bytes for each in found))


def announce(database: Database, org_id: uuid.UUID, versions: dict[str, Wanted], time_range: TimeRange) -> int:
    """Announce the latest segments of the range that are not up to date; return how many. Announcing twice is safe."""
    found = _unevaluated(database, org_id, versions, time_range)[:_BATCH]
    with database.transaction() as tx:
        outbox.put(tx, segments_made(found, [NAME]))
    crash_point("backfill_announced")
    return len(found)


def _unevaluated(
    database: Database, org_id: uuid.UUID, versions: dict[str, Wanted], time_range: TimeRange
) -> list[Segment]:
    with database.transaction() as tx:
        return [
            segment
            for signal, wanted in sorted(versions.items())
            for segment in unevaluated(
                tx, org_id, signal, time_range, wanted.version, metrics=wanted.metrics, without=wanted.derived
            )
        ]
