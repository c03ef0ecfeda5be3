"""What a query read, missed and cost: the part of every answer that says how far to trust it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakerunner.query.fanout.answer import Cost, SegmentAnswer
from lakerunner.query.plan.leaf import Explain


@dataclass(slots=True)
class QueryStats:
    """Filled by one query as it goes on, by all its threads. A segment that two selectors need counts for each."""

    index_lookups: int = 0
    #: How old the known segments are that were used because the index did not answer; 0 when it did.
    index_age_s: float = 0.0
    segments_considered: int = 0
    segments_planned: int = 0
    segments_read: int = 0
    #: Id of a segment -> why it could not be read.
    segments_failed: dict[str, str] = field(default_factory=dict)
    #: Rule -> segments that it passed by.
    segments_pruned: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    read_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    #: Stage -> seconds; those of workers are summed over all of them, and so may exceed the clock.
    seconds: dict[str, float] = field(default_factory=dict)
    #: The end of the latest segment that was planned, in ms: nothing after it was there to be read.
    watermark_ms: int | None = None
    explains: list[Explain] = field(default_factory=list)
    #: Worker -> steps that it evaluated; and what that took of workers' cores.
    pushed: dict[str, int] = field(default_factory=dict)
    worker_cpu_s: float = 0.0
    #: Counts are read, added to and written back: two threads at once would lose one's.
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def complete(self) -> bool:
        """Whether everything that there was has been read."""
        return not self.segments_failed and not self.index_age_s

    def spent(self, stage: str, seconds: float) -> None:
        with self._lock:
            self._add_seconds(stage, seconds)

    def planned(self, explain: Explain, watermark_ms: int | None) -> None:
        with self._lock:
            self.explains.append(explain)
            self.segments_considered += explain.considered
            self.segments_planned += explain.segments
            for step in explain.steps:
                if step.before > step.kept:
                    self.segments_pruned[step.rule] = self.segments_pruned.get(step.rule, 0) + step.before - step.kept
            if watermark_ms is not None:
                self.watermark_ms = max(self.watermark_ms or 0, watermark_ms)

    def looked_up(self, lookups: int, age_s: float) -> None:
        with self._lock:
            self.index_lookups = lookups
            self.index_age_s = max(self.index_age_s, age_s)

    def pushed_down(self, steps: int, worker: str, cpu_s: float) -> None:
        with self._lock:
            self.worker_cpu_s += cpu_s
            self.pushed[worker] = self.pushed.get(worker, 0) + steps

    def answered(self, answer: SegmentAnswer) -> None:
        cost: Cost = answer.cost
        with self._lock:
            if answer.error is None:
                self.segments_read += 1
            else:
                self.segments_failed[str(answer.segment_id)] = answer.error
            self.rows += cost.rows
            self.read_bytes += cost.read_bytes
            self.cache_hits += cost.cache_hits
            self.cache_misses += cost.cache_misses
            self._add_seconds("fetch", cost.fetch_s)
            self._add_seconds("scan", cost.scan_s)

    def _add_seconds(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def warnings(self) -> Sequence[str]:
        """What the answer misses, in sentences."""
        said = []
        with self._lock:
            reasons = list(self.segments_failed.values())
        if reasons:
            said.append(
                f"{len(reasons)} of {self.segments_planned} segments could not be read and are missing "
                f"from this answer: {reasons[0]}"
            )
        if self.index_age_s:
            said.append(
                f"the index does not answer: segments as known {self.index_age_s:.0f} s ago were read, later ones not"
            )
        return said

    def to_json(self) -> Mapping[str, Any]:
        with self._lock:
            return {
                "segments": {
                    "considered": self.segments_considered,
                    "pruned": self.segments_pruned,
                    "planned": self.segments_planned,
                    "read": self.segments_read,
                    "failed": len(self.segments_failed),
                },
                "complete": self.complete,
                "rows": self.rows,
                "bytes": self.read_bytes,
                "cache": {"hits": self.cache_hits, "misses": self.cache_misses},
                "seconds": {stage: round(seconds, 6) for stage, seconds in self.seconds.items()},
                "index": {"lookups": self.index_lookups, "ageSeconds": round(self.index_age_s, 1)},
                "watermarkMs": self.watermark_ms,
            }
