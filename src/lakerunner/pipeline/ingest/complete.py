"""Completes calls whose two sides came with different items: pairs an item's halves with those that wait in the index.

Clients that waited in vain, and name the service they called, are counted as calls to a service that sends no spans,
by items that come later, or after a while by an item of their own.
The driver does this after the tasks of an item, and the item's commit ends it: halves that were paired are deleted, the
others wait. If another item changed them meanwhile, the commit fails and the item comes again.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.bus.announce import segments_made
from lakerunner.index.call_halves import external_halves, storable, waiting_halves
from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.database import Database
from lakerunner.index.derivation import Derivation
from lakerunner.index.series_key import series_key
from lakerunner.index.work import WorkItem
from lakerunner.model.half_call import HALF, unpacked
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signals.traces import TRACES
from lakerunner.pipeline.derive.edges import external_edges, pair, without
from lakerunner.pipeline.edge_segments import DERIVED, edge_segments
from lakerunner.pipeline.ingest.task import TaskResult
from lakerunner.pipeline.stage import Item
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.metrics import GRAPH_HALVES
from lakerunner.store.object_store import ObjectStore

#: Clients that one item counts as calls to services without spans; the next item goes on.
_MOST_EXTERNAL = 5_000


@dataclass(frozen=True, slots=True)
class Completion:
    """The segments of completed calls, and what the index must record with the item."""

    segments: list[Segment]
    derivation: Derivation | None


def complete(
    database: Database,
    store: ObjectStore,
    item: Item[RawObject],
    results: Sequence[TaskResult],
    slot: int | None,
    key: bytes,
    peer_wait_s: float,
) -> Completion:
    slots = [pair for result in results for pair in result.slots]
    halves = unpacked(result.halves for result in results)
    if slot is None:
        return Completion([], Derivation(slots=slots) if slots else None)
    halves = storable(halves)
    with database.transaction() as tx:
        waiting = waiting_halves(tx, item.org_id, halves)
        waited = external_halves(tx, item.org_id, peer_wait_s, slot, _MOST_EXTERNAL)
    comes_now = waiting.filter(waiting.column("is_client")).column("pair").combine_chunks()
    external = waited.filter(pc.invert(pc.is_in(waited.column("pair"), value_set=comes_now)))
    paired = pair(pa.concat_tables([halves, waiting.select(HALF.names)]))
    taken = waiting.take(pa.array(paired.used[paired.used >= halves.num_rows] - halves.num_rows))
    left = without(halves, paired.used[paired.used < halves.num_rows])
    edges = pa.concat_tables([paired.edges, external_edges(external)])
    segments, intervals = edge_segments(store, item.org_id, item.collector, edges, slot, key)
    slots += [(slot, interval) for interval in intervals]
    taken = pa.concat_tables([taken, external])
    return Completion(segments, Derivation(slots, taken, left, external.num_rows))


def settle(database: Database, store: ObjectStore, org_id: uuid.UUID, slot: int, wait_s: float) -> int:
    """Count calls of clients that waited in vain, with an item of its own, and return how many: no span need come."""
    with database.transaction() as tx:
        external = external_halves(tx, org_id, wait_s, None, _MOST_EXTERNAL)
        key = series_key(tx)
    if not external.num_rows:
        return 0
    segments, intervals = edge_segments(store, org_id, DERIVED, external_edges(external), slot, key)
    crash_point("settle_after_write")
    # Known from its commit on: an item without inputs that stayed open could never be done.
    item = WorkItem(fresh_id(), "ingest", org_id, TRACES.name)
    derivation = Derivation([(slot, each) for each in intervals], external, external=external.num_rows)
    follow_ups = segments_made(segments)
    commit_item(
        database, ItemResult(item.item_id, segments, follow_ups=follow_ups, derivation=derivation, item=item)
    )  # fmt: skip
    crash_point("settle_after_commit")
    GRAPH_HALVES.labels("external").inc(external.num_rows)
    return int(external.num_rows)
