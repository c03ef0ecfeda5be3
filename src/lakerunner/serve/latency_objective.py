"""How many queries of each minute were answered in time, stored in the index for the monitor.

Counted from the histogram of durations that the API exports anyway, so that a query costs nothing more.
"""

from __future__ import annotations

import bisect
import os
import socket
from datetime import UTC, datetime

from lakerunner.index.database import Database
from lakerunner.index.objectives import QUERY_LATENCY, Minute, put_minute
from lakerunner.model.errors import LakeError
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.serve.metrics import API_BUCKETS_S, API_SECONDS

#: Outcomes for which the caller is to blame, or which the caller wanted. Such queries count neither way.
_CALLERS = frozenset({"bad_input", "denied", "missing", "limit_hit", "cancelled", "conflict"})


class LatencyObjective:
    """The minutes of this process."""

    def __init__(self, database: Database, target_s: float) -> None:
        self._database = database
        nth = min(bisect.bisect_left(API_BUCKETS_S, target_s), len(API_BUCKETS_S) - 1)
        #: The bucket that holds the target.
        self.target_s = API_BUCKETS_S[nth]
        self._source = f"{socket.gethostname()}/{os.getpid()}"
        self._minute = _minute(datetime.now(UTC))
        self._before = self._counts()

    def tick(self, now: datetime) -> None:
        """Store the last minute once it is over. While the index is down, its queries count for a later minute."""
        minute = _minute(now)
        if minute == self._minute:
            return
        good, total = self._counts()
        in_time, queries = good - self._before[0], total - self._before[1]
        if queries:
            try:
                with self._database.transaction() as tx:
                    put_minute(tx, Minute(QUERY_LATENCY, self._source, self._minute, in_time, queries))
            except LakeError:
                SWALLOWED.labels("latency_objective").inc()
                return
        self._minute, self._before = minute, (good, total)

    def _counts(self) -> tuple[int, int]:
        good = total = 0
        for family in API_SECONDS.collect():
            for sample in family.samples:
                if sample.labels.get("outcome") in _CALLERS or not sample.name.endswith("_bucket"):
                    continue
                bound = float(sample.labels["le"])
                if bound == float("inf"):
                    total += int(sample.value)
                elif bound == self.target_s and sample.labels["outcome"] == "ok":
                    good += int(sample.value)
        return good, total


def _minute(now: datetime) -> datetime:
    return now.replace(second=0, microsecond=0)
