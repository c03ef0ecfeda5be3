"""Work items of any stage: made of inputs that are still free, announced, loaded, gathered into batches."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Sequence

from lakerunner.bus import topics
from lakerunner.bus.messages import WorkReady, encode
from lakerunner.index import outbox, work
from lakerunner.index.database import Connection, Database
from lakerunner.index.outbox import Outgoing
from lakerunner.index.work import ItemState, WorkItem
from lakerunner.model.signals import signal_named
from lakerunner.pipeline.stage import I, Item, Stage
from lakerunner.runtime.settings import PipelineSettings

#: Into how many keys the items of one org are spread. A few for each partition of a topic: then every worker has its
#: part of an org's backlog, and an item that fails again and again holds back only those of its own key.
ORG_SHARES = 64


def make_item(database: Database, stage: Stage[I], inputs: Sequence[I]) -> uuid.UUID | None:
    """Make one item of those inputs that have none yet, in one transaction; None when every input has an item."""
    with database.transaction() as tx:
        return _make_item(tx, stage, inputs)


def make_items(
    database: Database, stage: Stage[I], inputs: Sequence[I], settings: PipelineSettings
) -> list[uuid.UUID]:  # fmt: skip
    """Make the items that the stage wants to be made now that these inputs have arrived."""
    if stage.gather is None:
        made = make_item(database, stage, inputs)
        return [] if made is None else [made]
    with database.transaction() as tx:
        found = [_make_item(tx, stage, chosen) for chosen in stage.gather(tx, inputs, settings)]
    return [item_id for item_id in found if item_id is not None]


def split_item(database: Database, stage: Stage[I], item: Item[I], reason: str) -> None:
    """End an open item and make one item of each half of its inputs, in one transaction."""
    middle = len(item.inputs) // 2
    with database.transaction() as tx:
        if work.end_item(tx, item.item_id, ItemState.STALE, f"split: {reason}".replace("\0", "\\0")):
            stage.inputs.release(tx, item.item_id)
            for half in (item.inputs[:middle], item.inputs[middle:]):
                _make_item(tx, stage, half)


def _make_item(tx: Connection, stage: Stage[I], inputs: Sequence[I]) -> uuid.UUID | None:
    free = stage.inputs.lock_free(tx, stage.name, inputs)
    if not free:
        return None
    item_id = work.item_id(stage.name, map(stage.inputs.input_id, free))
    item = WorkItem(item_id, stage.name, free[0].org_id, free[0].signal)
    # An item of exactly these inputs may have ended before they were set free to be tried again.
    work.reopen_item(tx, item)
    stage.inputs.bind(tx, stage.name, free, item_id)
    outbox.put(tx, [work_ready(item)])
    return item_id


def work_ready(item: WorkItem) -> Outgoing:
    """The message that announces an item to the workers of its stage.

    Items depend on nothing that was before them, so those of one org are spread over partitions, and so over workers.
    """
    message = WorkReady(item.item_id, item.org_id, item.signal, item.stage)
    key = f"{item.org_id}/{item.item_id.int % ORG_SHARES}"
    return Outgoing(topics.work(signal_named(item.signal), item.stage).name, key, encode(message))


def load_items(
    tx: Connection, stage: Stage[I], wanted: Sequence[uuid.UUID], settings: PipelineSettings
) -> tuple[dict[uuid.UUID, Item[I]], dict[uuid.UUID, ItemState]]:
    """The open ones of these items, and the states of those that have ended. One in neither was forgotten."""
    heads, ended = work.load_items(tx, wanted)
    inputs = stage.inputs.of_items(tx, list(heads))
    items = {
        item_id: Item(
            item_id=item_id,
            org_id=heads[item_id].org_id,
            signal=heads[item_id].signal,
            inputs=tuple(each for each, _ in found),
            weight=sum(stage.weigh(each, settings) for each, _ in found),
            waited_s=max(waited_s for _, waited_s in found),
        )
        for item_id, found in inputs.items()
    }
    return items, ended


def next_batch(waiting: Iterable[Item[I]], max_items: int, max_weight: int) -> list[Item[I]]:
    """As many items as one batch should take, at least one: of all orgs in turn, each org's in their order.

    An org with much to do fills a batch if it is alone, and leaves the others their turn if it is not.
    """
    queues: dict[uuid.UUID, deque[Item[I]]] = {}
    for item in waiting:
        queues.setdefault(item.org_id, deque()).append(item)
    batch: list[Item[I]] = []
    weight = 0
    turns = deque(queues.values())
    while turns and len(batch) < max_items:
        queue = turns.popleft()
        if batch and weight + queue[0].weight > max_weight:
            # Another org may have one that is small enough.
            continue
        batch.append(queue.popleft())
        weight += batch[-1].weight
        if queue:
            turns.append(queue)
    return batch
