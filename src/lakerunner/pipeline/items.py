"""Work items of ingest as the driver holds them: loaded many at a time, cut into tasks, gathered into batches."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg.rows import DictRow

from lakerunner.index.database import Connection
from lakerunner.index.work import ItemState
from lakerunner.pipeline.ingest_task import ObjectRef
from lakerunner.pipeline.packing import estimated_bytes


@dataclass(frozen=True, slots=True)
class IngestItem:
    item_id: uuid.UUID
    org_id: uuid.UUID
    collector: str
    signal: str
    objects: tuple[ObjectRef, ...]
    #: Estimated, uncompressed.
    weight: int
    #: How long ago the first of its objects was seen.
    waited_s: float


def load_items(
    tx: Connection, wanted: Sequence[uuid.UUID], expansion: float
) -> tuple[dict[uuid.UUID, IngestItem], dict[uuid.UUID, ItemState]]:
    """The open ones of these items, and the states of those that have ended. One that is in neither was forgotten."""
    rows = tx.execute("SELECT item_id, org_id, signal, state FROM work_item WHERE item_id = ANY(%s)", [list(wanted)])
    ended: dict[uuid.UUID, ItemState] = {}
    heads = {}
    for row in rows.fetchall():
        if row["state"] == ItemState.OPEN:
            heads[row["item_id"]] = row
        else:
            ended[row["item_id"]] = ItemState(row["state"])
    objects = tx.execute(
        "SELECT item_id, object_id, collector, bucket, key, version, size_bytes,"
        " extract(epoch FROM now() - seen_at)::float8 AS waited_s FROM raw_object"
        " WHERE item_id = ANY(%s) ORDER BY item_id, seen_at, key",
        [list(heads)],
    ).fetchall()
    grouped: dict[uuid.UUID, list[DictRow]] = {}
    for row in objects:
        grouped.setdefault(row["item_id"], []).append(row)
    return {item_id: _item(heads[item_id], mine, expansion) for item_id, mine in grouped.items()}, ended


def _item(head: DictRow, rows: list[DictRow], expansion: float) -> IngestItem:
    names = ("object_id", "bucket", "key", "version", "size_bytes")
    refs = tuple(ObjectRef(*(row[name] for name in names)) for row in rows)
    return IngestItem(
        item_id=head["item_id"],
        org_id=head["org_id"],
        collector=str(rows[0]["collector"]),
        signal=str(head["signal"]),
        objects=refs,
        weight=sum(estimated_bytes(ref.key, ref.size_bytes, expansion) for ref in refs),
        waited_s=max(float(row["waited_s"]) for row in rows),
    )


def shares(objects: Sequence[ObjectRef], task_bytes: int, expansion: float) -> list[tuple[ObjectRef, ...]]:
    """The objects in runs of about equal weight, as few as keep the average below the cap of a task.

    >>> refs = [ObjectRef(uuid.UUID(int=n), "b", f"{n}.json", "", 40) for n in range(6)]
    >>> [len(share) for share in shares(refs, 100, 1.0)]
    [2, 2, 2]
    """
    weights = [estimated_bytes(ref.key, ref.size_bytes, expansion) for ref in objects]
    total = sum(weights)
    count = max(1, -(-total // task_bytes))
    runs: list[list[ObjectRef]] = [[] for _ in range(count)]
    before = 0
    for ref, weight in zip(objects, weights, strict=True):
        # An object belongs to the run in which its middle lies.
        runs[(2 * before + weight) * count // (2 * total)].append(ref)
        before += weight
    return [tuple(run) for run in runs if run]


def next_batch(waiting: Iterable[IngestItem], max_items: int, max_bytes: int) -> list[IngestItem]:
    """The first items, as many as one job should take; at least one."""
    batch: list[IngestItem] = []
    weight = 0
    for item in waiting:
        if batch and (len(batch) >= max_items or weight + item.weight > max_bytes):
            break
        batch.append(item)
        weight += item.weight
    return batch
