"""Commit a work item: all its changes become visible in a single transaction, exactly once."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakerunner.index import deletions, outbox
from lakerunner.index.alert_states import RuleEvaluation, apply_evaluation
from lakerunner.index.call_halves import hold_halves
from lakerunner.index.database import Connection, Database
from lakerunner.index.derivation import Derivation, apply_derivation
from lakerunner.index.derived_windows import Remade, apply_remade, is_catalog
from lakerunner.index.joined_windows import join
from lakerunner.index.ledger import end_objects
from lakerunner.index.outbox import Outgoing
from lakerunner.index.rollup_windows import (
    end_windows,
    hold_windows,
    mark_inserted,
    release_windows,
    share_windows,
)
from lakerunner.index.row_reports import put_reports
from lakerunner.index.rule_clashes import record_clashes
from lakerunner.index.rule_holes import Hole, record_holes
from lakerunner.index.rule_series import note_series
from lakerunner.index.rule_versions import Evaluated, RulesUsed, differing_versions, mark_evaluated, require_not_retired
from lakerunner.index.segment_inputs import release_segments, release_some
from lakerunner.index.segment_sources import forget_sources, record_sources
from lakerunner.index.segments import SegmentRef, ensure_partitions, insert_segments, supersede
from lakerunner.index.work import ItemState, WorkItem, create_item, end_item
from lakerunner.model.deletion import SegmentDeleted
from lakerunner.model.errors import Bug, Missing
from lakerunner.model.raw_object import ObjectOutcome
from lakerunner.model.rollup_window import Window
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.signals import METRICS
from lakerunner.runtime.crash import crash_point


class Outcome(enum.StrEnum):
    #: This attempt's results are now visible.
    COMMITTED = "committed"
    #: Another attempt was first: the objects that this one wrote are orphans for the sweeper.
    ALREADY = "already"
    #: An input was no longer live: the item ended without any change.
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The changes that an attempt at an item wants to commit."""

    item_id: uuid.UUID
    made: Sequence[Segment] = ()
    superseded: Sequence[SegmentRef] = ()
    objects: Sequence[ObjectOutcome] = ()
    follow_ups: Sequence[Outgoing] = ()
    #: Windows that `made` holds all rows of, each with the generation that was read.
    windows: Sequence[Window] = ()
    #: Wide windows that take the place of some of `windows`; and whether they are as wide as they will ever be.
    joined: Sequence[Window] = ()
    settled: bool = False
    #: Segment made -> the raw objects that its rows come from. A segment that is not named has unknown sources.
    sources: Mapping[uuid.UUID, Sequence[uuid.UUID]] = field(default_factory=dict)
    #: What derived metrics among `made` need to be counted exactly once.
    derivation: Derivation | None = None
    #: The item did nothing with its segments: another item may take them.
    releases_inputs: bool = False
    #: Inputs that stay as they are, and that later items of the stage may take again.
    released: Sequence[SegmentRef] = ()
    #: What became of segments that deletions concern.
    deletions: Sequence[SegmentDeleted] = ()
    #: The rules of which `made` has samples.
    rules: RulesUsed | None = None
    #: Stretches of time in which samples of rules differ from their rows from now on.
    holes: Sequence[Hole] = ()
    #: Live segments of which `made` has the samples of further rules.
    evaluated: Sequence[Evaluated] = ()
    #: The version of the rules that superseded segments had when they were read. Those not named had none.
    rules_versions: Mapping[uuid.UUID, int] = field(default_factory=dict)
    #: A batch of rules whose results `made` holds, and the item, which this commit creates too.
    rule_evaluation: RuleEvaluation | None = None
    item: WorkItem | None = None
    #: A stretch of time whose derived samples `made` has anew.
    remade: Remade | None = None


class _Stale(Exception):
    """Rolls the changes back; the item is then marked."""


def commit_item(database: Database, result: ItemResult) -> Outcome:
    """Compare-and-swap the item and its inputs, insert outputs, mark the ledger, write the outbox: all or nothing."""
    ensure_partitions(database, (segment.index_day for segment in result.made))
    crash_point("before_commit")
    with database.transaction() as tx:
        if result.item is not None:
            create_item(tx, result.item)
        if not end_item(tx, result.item_id, ItemState.DONE):
            return _lost_to(tx, result.item_id)
        try:
            with tx.transaction():
                _apply(tx, result)
        except _Stale as reason:
            release_segments(tx, result.item_id)
            release_windows(tx, result.item_id)
            tx.execute(
                "UPDATE work_item SET state = 'stale', reason = %s WHERE item_id = %s", [str(reason), result.item_id]
            )
            outcome = Outcome.STALE
        else:
            outcome = Outcome.COMMITTED
    crash_point("after_commit")
    return outcome


def _apply(tx: Connection, result: ItemResult) -> None:
    _lock_windows(tx, result)
    if result.remade is not None:
        _replace(tx, result.remade)
    superseded = supersede(tx, result.superseded, result.item_id)
    if superseded != len(result.superseded):
        raise _Stale(f"{len(result.superseded) - superseded} of {len(result.superseded)} input segments are not live")
    differing = differing_versions(tx, result.superseded, result.rules_versions)
    if differing:
        raise _Stale(f"rules were evaluated over {differing} of its input segments meanwhile")
    evaluated = mark_evaluated(tx, result.evaluated)
    if evaluated != len(result.evaluated):
        raise _Stale(f"{len(result.evaluated) - evaluated} of {len(result.evaluated)} segments were replaced meanwhile")
    unapplied = deletions.unapplied(tx, result.superseded, result.deletions)
    if unapplied:
        raise _Stale(f"{unapplied} deletions of its input segments are open")
    release_some(tx, result.item_id, result.released)
    if not deletions.apply_outcomes(tx, result.deletions):
        raise _Stale("a deletion that it applies is not open any more")
    ended = end_windows(tx, result.windows, result.item_id)
    if ended != len(result.windows):
        raise _Stale(f"the rows of {len(result.windows) - ended} of {len(result.windows)} windows have changed since")
    if not join(tx, result.joined, result.windows, result.settled):
        raise _Stale("windows that it joins are no longer neighbours")
    ended = end_objects(tx, result.item_id, result.objects)
    if ended != len(result.objects):
        raise Bug(
            f"cannot commit item {result.item_id}: {len(result.objects) - ended} of its raw objects are not its own"
        )
    put_reports(tx, result.objects)
    if result.rule_evaluation is not None and not apply_evaluation(tx, result.rule_evaluation):
        raise _Stale("the group of rules was changed or evaluated meanwhile")
    insert_segments(tx, result.made, result.item_id)
    if result.derivation is not None:
        apply_derivation(tx, result.made[0].org_id if result.made else _org_of(tx, result), result.derivation)
    _apply_rules(tx, result)
    derived = result.evaluated or result.derivation is not None or result.remade is not None
    if result.objects or derived or result.rule_evaluation is not None:
        # Only raw objects and rules bring new rows; other stages write the same rows again.
        mark_inserted(tx, result.made)
    record_sources(tx, result.made, result.sources)
    forget_sources(tx, result.superseded)
    if result.releases_inputs:
        release_segments(tx, result.item_id)
    outbox.put(tx, result.follow_ups)


def _lock_windows(tx: Connection, result: ItemResult) -> None:
    """Before any row of a segment is locked, so that joining windows and touching them do not deadlock."""
    if result.joined:
        hold_windows(tx, result.joined[0].org_id)
    elif result.deletions:
        share_windows(tx, _org_of(tx, result))
    elif result.remade is not None:
        share_windows(tx, result.remade.due.org_id)
        if result.remade.waiting is not None:
            # Whoever pairs calls locks the halves first and the catalog of rules after them.
            hold_halves(tx, result.remade.due.org_id)


def _replace(tx: Connection, remade: Remade) -> None:
    """Hide the samples that are replaced. The catalog is locked first, as by those who change rules."""
    if not is_catalog(tx, remade.due, remade.catalog_version):
        raise _Stale("rules were changed meanwhile")
    replaced_by = None
    if remade.replaced is not None:
        replaced_by = deletions.request_deletion(tx, remade.replaced, 0.0, remade.may_hold, makes_holes=False)
    reason = apply_remade(tx, remade, replaced_by)
    if reason is not None:
        raise _Stale(reason)


def _org_of(tx: Connection, result: ItemResult) -> uuid.UUID:
    row = tx.execute("SELECT org_id FROM work_item WHERE item_id = %s", [result.item_id]).fetchone()
    assert row is not None
    org_id: uuid.UUID = row["org_id"]
    return org_id


def _apply_rules(tx: Connection, result: ItemResult) -> None:
    given = _given_metrics(tx, result)
    if given:
        record_clashes(tx, given[0].org_id, given)
    if result.rules is None and not result.holes:
        return
    org_id = _org_of(tx, result)
    if result.rules is not None:
        require_not_retired(tx, org_id, result.rules)
        note_series(tx, org_id, result.rules.signal, result.rules.series)
    record_holes(tx, org_id, result.holes)


def _given_metrics(tx: Connection, result: ItemResult) -> list[Segment]:
    """The segments made whose metrics were sent, or recorded, and not derived by materialization rules."""
    metrics = [segment for segment in result.made if segment.signal == METRICS.name and segment.tier_s == RAW_TIER_S]
    if not metrics or result.rule_evaluation is not None:
        return metrics
    if not result.objects:
        return []
    row = tx.execute("SELECT signal FROM work_item WHERE item_id = %s", [result.item_id]).fetchone()
    if row is None or row["signal"] != METRICS.name:
        return []
    # Of an item of metrics, only what was sent says with which version of the rules it was evaluated.
    version = 0 if result.rules is None else result.rules.version
    return [segment for segment in metrics if segment.rules_version >= version]


def _lost_to(tx: Connection, item_id: uuid.UUID) -> Outcome:
    row = tx.execute("SELECT state FROM work_item WHERE item_id = %s", [item_id]).fetchone()
    if row is None:
        raise Missing(f"cannot commit item {item_id}: the index does not know it")
    return Outcome.STALE if row["state"] == ItemState.STALE else Outcome.ALREADY
