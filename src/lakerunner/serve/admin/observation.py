"""One look at the whole deployment: index, bus, dead letters, bucket. What conditions, gauges and the status read."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from lakerunner.bus.contract import Bus
from lakerunner.bus.dead_letters import dead_letters
from lakerunner.index.database import Database
from lakerunner.index.status import IndexStatus, index_status
from lakerunner.model.errors import LakeError
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Messages of a topic that a group of consumers has not finished."""

    group: str
    topic: str
    lag: int


@dataclass(frozen=True, slots=True)
class BucketProbe:
    """How long a small request to the bucket took, or why it failed."""

    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen. A part that could not be read is None."""

    index: IndexStatus
    lags: list[GroupLag] | None
    dead_letters: int | None
    bucket: BucketProbe | None


def observe(database: Database, bus: Bus, store: ObjectStore, dead: int | None = None) -> Observation:
    """Look now. `dead` is the number of dead letters where the caller knows it: counting reads them all."""
    return Observation(
        index_status(database), group_lags(bus), count_dead(bus) if dead is None else dead, probe_bucket(store)
    )


def group_lags(bus: Bus) -> list[GroupLag] | None:
    behind: Counter[tuple[str, str]] = Counter()
    try:
        for lag in bus.lag():
            behind[lag.group, lag.topic] += lag.behind
    except LakeError:
        SWALLOWED.labels("observe_bus").inc()
        return None
    return [GroupLag(group, topic, lag) for (group, topic), lag in sorted(behind.items())]


def count_dead(bus: Bus) -> int | None:
    try:
        return len(dead_letters(bus))
    except LakeError:
        SWALLOWED.labels("observe_dead_letters").inc()
        return None


def probe_bucket(store: ObjectStore) -> BucketProbe:
    started = time.monotonic()
    try:
        store.ping()
    except LakeError as error:
        return BucketProbe(time.monotonic() - started, str(error))
    return BucketProbe(time.monotonic() - started)
