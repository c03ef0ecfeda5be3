"""How the backlog of one org shrinks with the number of workers: a simulation of queueing, as JSON lines.

`python -m bench.scaling` deals the items of one org, and of one beside a hundred times larger one, to 1, 2, 4 and 8
workers of one core each, by the keys that boxers really give and the batches that workers really take. The peer is the
ideal law (N workers, 1/N of the time), and, for one org alone, the same items under the key of the org alone.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lakerunner.bus import topics
from lakerunner.index.work import WorkItem
from lakerunner.pipeline.items import next_batch, work_ready
from lakerunner.pipeline.stage import Item

_PARTITIONS = 16
_WORKERS = (1, 2, 4, 8)
_BATCH_ITEMS, _TASK_BYTES = 16, 64 << 20
#: One core decodes, sorts and writes so many uncompressed bytes a second; each job costs this much more.
_BYTES_PER_S, _JOB_S = 60e6, 0.15
#: How long boxers gather a bundle while ingest is idle.
_BUNDLE_S = 2.0
Key = Callable[[WorkItem], str]


@dataclass(frozen=True)
class Work:
    item: Item[Any]
    arrives_s: float


def spread(item: WorkItem) -> str:
    return work_ready(item).key


def by_org(item: WorkItem) -> str:
    return str(item.org_id)


def simulate(work: Sequence[Work], workers: int, key: Key) -> dict[uuid.UUID, float]:
    """Item -> when it is done. Partitions are dealt to workers in turn; a worker runs one batch after the other."""
    queues: defaultdict[int, list[Work]] = defaultdict(list)
    for each in work:
        name = key(WorkItem(each.item.item_id, "ingest", each.item.org_id, "logs"))
        queues[topics.partition_of(name, _PARTITIONS) % workers].append(each)
    done: dict[uuid.UUID, float] = {}
    for mine in queues.values():
        pending = [(each.arrives_s, nth, each.item) for nth, each in enumerate(mine)]
        heapq.heapify(pending)
        waiting: list[Item[Any]] = []
        now_s = 0.0
        while pending or waiting:
            if not waiting:
                now_s = max(now_s, pending[0][0])
            while pending and pending[0][0] <= now_s:
                waiting.append(heapq.heappop(pending)[2])
            batch = next_batch(waiting, _BATCH_ITEMS, _TASK_BYTES * _BATCH_ITEMS)
            now_s += _JOB_S + sum(item.weight for item in batch) / _BYTES_PER_S
            for item in batch:
                waiting.remove(item)
                done[item.item_id] = now_s
    return done


def backlog(count: int, seed: int) -> list[Work]:
    """Items of one org that all wait already."""
    rng = random.Random(seed)
    org = uuid.UUID(int=rng.getrandbits(128))
    return [Work(_item(rng, org, rng.randint(8 << 20, 128 << 20)), 0.0) for _ in range(count)]


def beside(seconds: int, times: int, seed: int) -> tuple[uuid.UUID, list[Work]]:
    """A small org with a small item every two seconds, and one that sends that many times as much."""
    rng = random.Random(seed)
    small, large = (uuid.UUID(int=rng.getrandbits(128)) for _ in range(2))
    work = [Work(_item(rng, small, 1 << 20), 2.0 * nth) for nth in range(seconds // 2)]
    if times:
        work += [Work(_item(rng, large, times << 20), 2.0 * nth + rng.random()) for nth in range(seconds // 2)]
    return small, work


def _item(rng: random.Random, org: uuid.UUID, weight: int) -> Item[object]:  # type: ignore[type-var]
    return Item(uuid.UUID(int=rng.getrandbits(128)), org, "logs", (), weight, 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer items")
    chosen = parser.parse_args()
    work = backlog(200 if chosen.quick else 2_000, 1)
    alone = max(simulate(work, 1, spread).values())
    for workers in _WORKERS:
        took = max(simulate(work, workers, spread).values())
        _say(f"one org's backlog, {workers} workers", took, "s", "1/N of one worker", alone / workers)
        once = max(simulate(work, workers, by_org).values())
        _say(f"one org's backlog, {workers} workers, beside its key alone", took, "s", "keyed by org", once)
    for workers in (2, 4):
        p99 = []
        for times in (0, 100):
            small, load = beside(200 if chosen.quick else 2_000, times, 2)
            done = simulate(load, workers, spread)
            waits = sorted(done[each.item.item_id] - each.arrives_s for each in load if each.item.org_id == small)
            p99.append(_BUNDLE_S + waits[int(0.99 * len(waits))])
        _say(f"p99 of a small org beside 100x, {workers} workers", p99[1], "s", "the small org alone", p99[0])
    return 0


def _say(case: str, value: float, unit: str, peer: str, peer_value: float) -> None:
    line = {
        "bench": "scaling", "case": case, "value": round(value, 3), "unit": unit, "better": "lower", "peer": peer,
        "peer_value": round(peer_value, 3), "ratio": round(value / peer_value, 3),
    }  # fmt: skip
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
