"""Which queries were small when they last ran. A small query goes to one worker in one piece, and takes no threads.

The plan cannot predict the size: a selector of one series reads the same segments as a selector of ten thousand.
Dashboards repeat their queries, so the previous run is a good prediction.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict

from lakerunner.query.lake_query import SMALL_SAMPLES
from lakerunner.query.language import Plan

#: Rows that a worker found in less time are sent by the thread that finds them.
_SMALL_CPU_S = 0.02
_MAX_QUERIES = 10_000


class QuerySizes:
    """Whether recent queries were small, by org. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._small: OrderedDict[tuple[uuid.UUID, str, str, int, int], bool] = OrderedDict()

    def is_small(self, org_id: uuid.UUID, plan: Plan) -> bool:
        return self._small.get(_key(org_id, plan), False)

    def record_samples(self, org_id: uuid.UUID, plan: Plan, samples: int) -> None:
        """A query for values has read so many samples."""
        self._record(_key(org_id, plan), samples < SMALL_SAMPLES)

    def record_rows(self, org_id: uuid.UUID, plan: Plan, worker_cpu_s: float) -> None:
        """A query for rows, or for values of rows, has taken so much time of its workers."""
        self._record(_key(org_id, plan), worker_cpu_s < _SMALL_CPU_S)

    def _record(self, key: tuple[uuid.UUID, str, str, int, int], is_small: bool) -> None:
        with self._lock:
            self._small[key] = is_small
            self._small.move_to_end(key)
            if len(self._small) > _MAX_QUERIES:
                self._small.popitem(last=False)


def _key(org_id: uuid.UUID, plan: Plan) -> tuple[uuid.UUID, str, str, int, int]:
    return org_id, plan.language, plan.canonical, plan.times.range_ms, plan.times.step_ms
