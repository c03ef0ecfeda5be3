"""What a query read, missed and cost: the part of every answer that says how far it can be trusted."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakerunner.query.fanout.answer import Cost, EvaluateAnswer, SegmentAnswer
from lakerunner.query.plan.leaf import Explain
from lakerunner.query.scan.rows.request import SCAN_COUNTS


@dataclass(slots=True)
class QueryStats:
    """Filled by all threads of one query. A segment that two selectors need is counted for each of them."""

    index_lookups: int = 0
    #: Age of the remembered segments that were used because the index did not answer; 0 when it answered.
    index_age_s: float = 0.0
    segments_considered: int = 0
    segments_planned: int = 0
    segments_read: int = 0
    #: Id of a segment -> why it could not be read.
    segments_failed: dict[str, str] = field(default_factory=dict)
    #: Rule -> segments that it pruned.
    segments_pruned: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    read_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    #: Stage -> seconds, summed over threads and workers, so that they may exceed the elapsed time.
    seconds: dict[str, float] = field(default_factory=dict)
    #: Every raw object of the query's signals that arrived in its bucket before this time can be in the answer.
    watermark_ms: int | None = None
    explains: list[Explain] = field(default_factory=list)
    #: Worker -> steps that it evaluated; and the seconds of cores that this took.
    pushed: dict[str, int] = field(default_factory=dict)
    worker_cpu_s: float = 0.0
    #: Of row scans: row groups looked at, and what pruned them.
    row_scan: dict[str, int] = field(default_factory=dict)
    #: The conditions that the scans of rows decided by themselves, as JSON.
    predicates: list[dict[str, Any]] = field(default_factory=list)
    #: What rules answered of the query, and why not more, as JSON.
    rewrites: list[dict[str, Any]] = field(default_factory=list)
    #: Guards every count: += of two threads at once would lose one.
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def complete(self) -> bool:
        """Whether everything there was to read was read."""
        return not self.segments_failed and not self.index_age_s

    def spent(self, stage: str, seconds: float) -> None:
        with self._lock:
            self._add_seconds(stage, seconds)

    def planned(self, explain: Explain) -> None:
        with self._lock:
            self.explains.append(explain)
            self.segments_considered += explain.considered
            self.segments_planned += explain.segments
            for step in explain.steps:
                if step.before > step.kept:
                    self.segments_pruned[step.rule] = self.segments_pruned.get(step.rule, 0) + step.before - step.kept

    def looked_up(self, lookups: int, age_s: float, watermark_ms: int | None) -> None:
        with self._lock:
            known = [watermark_ms, self.watermark_ms] if self.index_lookups else [watermark_ms]
            self.watermark_ms = min((each for each in known if each is not None), default=None)
            self.index_lookups = lookups
            self.index_age_s = max(self.index_age_s, age_s)

    def pushed_down(self, steps: int, worker: str, cpu_s: float) -> None:
        with self._lock:
            self.worker_cpu_s += cpu_s
            self.pushed[worker] = self.pushed.get(worker, 0) + steps

    def answered(self, answer: SegmentAnswer) -> None:
        with self._lock:
            if answer.error is None:
                self.segments_read += 1
            else:
                self.segments_failed[str(answer.segment_id)] = answer.error
            self._add_cost(answer.cost)

    def evaluated(self, answer: EvaluateAnswer) -> None:
        """What a worker read for the steps that it evaluated."""
        with self._lock:
            self.segments_read += answer.segments
            self._add_cost(answer.cost)

    def _add_cost(self, cost: Cost) -> None:
        self.rows += cost.rows
        self.read_bytes += cost.read_bytes
        self.cache_hits += cost.cache_hits
        self.cache_misses += cost.cache_misses
        self._add_seconds("fetch", cost.fetch_s)
        self._add_seconds("scan", cost.scan_s)

    def streamed(self, answer: EvaluateAnswer, segments: int) -> None:
        """Rows that a worker gave, and what reading them took."""
        tally = answer.note["tally"]
        with self._lock:
            self.segments_failed |= tally["failed"]
            self.segments_read += segments - len(tally["failed"])
            self.rows += tally["rows"]
            self.read_bytes += tally["read_bytes"]
            self.predicates += [each for each in answer.note["predicates"] if each not in self.predicates]
            self.cache_hits += tally["hits"]
            self.cache_misses += tally["misses"]
            self.worker_cpu_s += answer.cpu_s
            self._add_seconds("fetch", tally["fetch_s"])
            for name in SCAN_COUNTS:
                self.row_scan[name] = self.row_scan.get(name, 0) + tally[name]

    def excluded(self, segments: int, groups: Mapping[str, int]) -> None:
        """Segments whose row groups filters excluded before any worker was asked."""
        with self._lock:
            self.segments_read += segments
            self.row_scan["segments_excluded"] = self.row_scan.get("segments_excluded", 0) + segments
            for name, count in (("groups", sum(groups.values())), *groups.items()):
                self.row_scan[name] = self.row_scan.get(name, 0) + count

    def held(self, segments: int, rows: int) -> None:
        """Segments whose rows were found for an earlier query."""
        with self._lock:
            self.segments_read += segments
            self.rows += rows
            self.row_scan["segments_held"] = self.row_scan.get("segments_held", 0) + segments

    def lost(self, segment_ids: Sequence[str], reason: str) -> None:
        """Segments that no worker could read."""
        with self._lock:
            self.segments_failed |= dict.fromkeys(segment_ids, reason)

    def _add_seconds(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def warnings(self) -> Sequence[str]:
        """Sentences about what the answer misses."""
        said = []
        with self._lock:
            reasons = list(self.segments_failed.values())
        if reasons:
            said.append(
                f"{len(reasons)} of {self.segments_planned} segments could not be read and are missing "
                f"from this answer: {reasons[0]}"
            )
        said += dict.fromkeys(sentence for explain in list(self.explains) for sentence in explain.missed)
        if self.index_age_s:
            said.append(
                f"the index does not answer: segments as known {self.index_age_s:.0f} s ago were read, later ones not"
            )
        return said

    def counts(self) -> dict[str, object]:
        """What was read so far, for progress and summaries."""
        with self._lock:
            return {
                "segmentsPlanned": self.segments_planned,
                "segmentsRead": self.segments_read,
                "segmentsFailed": len(self.segments_failed),
                "rows": self.rows,
                "bytes": self.read_bytes,
            }

    def to_json(self) -> dict[str, object]:
        """As every summary has it."""
        return {
            **self.counts(),
            "segmentCacheHits": self.cache_hits,
            "approximate": any(explain.approximate for explain in self.explains),
            "tiersSeconds": sorted({tier_s for explain in self.explains for tier_s in explain.tiers_s}),
            "watermarkMs": self.watermark_ms,
            "indexAgeSeconds": round(self.index_age_s, 1),
        }

    def explanation(self) -> dict[str, object]:
        """How the answer was made: stage by stage, where its steps were evaluated, and leaf by leaf."""
        return {
            "stageSeconds": {stage: round(seconds, 6) for stage, seconds in self.seconds.items()},
            "pushDown": {"stepsByWorker": dict(self.pushed), "workerCpuSeconds": round(self.worker_cpu_s, 6)},
            "selectors": [explain.to_json() for explain in self.explains],
            **({"rowScan": {**self.row_scan, "predicates": self.predicates}} if self.row_scan else {}),
            **({"rewrites": self.rewrites} if self.rewrites else {}),
        }

    def __getstate__(self) -> dict[str, object]:
        """Without the lock: complete answers are cached with their statistics, as bytes."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._lock = threading.Lock()
