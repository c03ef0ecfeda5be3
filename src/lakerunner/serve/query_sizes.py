"""Which queries were small when they last ran. A small query goes to one worker in one piece, and takes no threads.

One that is not so small may still take too little to be cut into pieces.

The plan cannot predict the size: a selector of one series reads the same segments as a selector of ten thousand.
Dashboards repeat their queries, so the previous run is a good prediction.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict

from lakerunner.query.lake_query import SMALL_SAMPLES
from lakerunner.query.language import Plan
from lakerunner.query.limits import Size

#: What takes workers less CPU time is done by one thread, and what takes less than the second is not cut.
_SMALL_CPU_S, _WHOLE_CPU_S = 0.03, 0.1
_MAX_QUERIES = 10_000


class QuerySizes:
    """Whether recent queries were small, by org. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: OrderedDict[tuple[int, str, str, int, int], Size] = OrderedDict()

    def size_of(self, org_id: uuid.UUID, plan: Plan) -> Size:
        return self._sizes.get(_key(org_id, plan), Size.LARGE)

    def record_samples(self, org_id: uuid.UUID, plan: Plan, samples: int) -> None:
        """A query for values has read this many samples."""
        self._record(_key(org_id, plan), Size.SMALL if samples < SMALL_SAMPLES else Size.LARGE)

    def record_rows(self, org_id: uuid.UUID, plan: Plan, worker_cpu_s: float) -> None:
        """A query for rows, or for values of rows, has taken so much time of its workers."""
        size = Size.SMALL if worker_cpu_s < _SMALL_CPU_S else Size.WHOLE if worker_cpu_s < _WHOLE_CPU_S else Size.LARGE
        self._record(_key(org_id, plan), size)

    def _record(self, key: tuple[int, str, str, int, int], size: Size) -> None:
        with self._lock:
            self._sizes[key] = size
            self._sizes.move_to_end(key)
            if len(self._sizes) > _MAX_QUERIES:
                self._sizes.popitem(last=False)


def _key(org_id: uuid.UUID, plan: Plan) -> tuple[int, str, str, int, int]:
    # The number of an id: hashing the id itself is a call of Python, and every key is hashed four times.
    return org_id.int, plan.language, plan.canonical, plan.times.range_ms, plan.times.step_ms
