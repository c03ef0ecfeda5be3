"""How many samples each query read when it last ran. A small query goes to one worker in one piece.

The plan cannot predict the size: a selector of one series reads the same segments as a selector of ten thousand.
Dashboards repeat their queries, so the previous run is a good prediction.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict

from lakerunner.query.language import Plan

#: Below this many samples, a second worker request costs more than it saves.
_SMALL_SAMPLES = 200_000
_MAX_QUERIES = 10_000


class QuerySizes:
    """Sample counts of recent queries, by org. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: OrderedDict[tuple[uuid.UUID, str, str, int, int], int] = OrderedDict()

    def is_small(self, org_id: uuid.UUID, plan: Plan) -> bool:
        return self._samples.get(_key(org_id, plan), _SMALL_SAMPLES) < _SMALL_SAMPLES

    def record(self, org_id: uuid.UUID, plan: Plan, samples: int) -> None:
        key = _key(org_id, plan)
        with self._lock:
            self._samples[key] = samples
            self._samples.move_to_end(key)
            if len(self._samples) > _MAX_QUERIES:
                self._samples.popitem(last=False)


def _key(org_id: uuid.UUID, plan: Plan) -> tuple[uuid.UUID, str, str, int, int]:
    return org_id, plan.language, plan.canonical, plan.times.range_ms, plan.times.step_ms
