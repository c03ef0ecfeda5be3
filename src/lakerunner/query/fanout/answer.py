"""Answers of workers: for a scan, each segment's samples or failure; for an evaluation, its value and cost."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from lakerunner.query.fanout.protocol import EvaluateRequest, ScanRequest, SegmentObjects
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.store.requests import add_requests

#: Raises when the answer is no longer wanted.
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer cost."""

    rows: int = 0
    read_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    fetch_s: float = 0.0
    scan_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class SegmentAnswer:
    """One segment's `samples` (in parts) or `table`, depending on the request's kind; neither with an `error`."""

    segment_id: uuid.UUID
    samples: Sequence[Samples] = ()
    table: pa.Table | None = None
    cost: Cost = field(default_factory=Cost)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EvaluateAnswer:
    """The batches and the note of a fragment's language, with the cost of the evaluation."""

    batches: Sequence[pa.RecordBatch]
    note: Mapping[str, Any]
    #: The worker's address.
    worker: str
    #: CPU time of the worker, over all its threads.
    cpu_s: float
    #: How many segments were read, one that two selects need twice; and what that cost in all.
    segments: int
    cost: Cost

    @classmethod
    def of_note(cls, note: Mapping[str, Any], worker: str, batches: Sequence[pa.RecordBatch] = ()) -> EvaluateAnswer:
        """From the note that an evaluation sends after its last batch."""
        add_requests(note.get("requests", ()))
        costs = note["costs"]
        # Scans of rows have none.
        total = Cost(*(sum([cost[name] for cost in costs]) for name in Cost.__slots__)) if costs else Cost()
        return cls(batches, note, worker, float(note["cpu_s"]), len(costs), total)

    @property
    def excluded_by_filters(self) -> int:
        """Row groups that needle and bloom filters excluded from a scan of rows."""
        tally = self.note.get("tally", {})
        return int(tally.get("pruned_by_needles", 0) + tally.get("pruned_by_bloom", 0))


class Workers(Protocol):
    """Processes that scan and evaluate. Safe to share between threads."""

    @property
    def count(self) -> int:
        """The number of workers that can evaluate fragments; 0 if the caller must do so itself."""
        ...

    def shares(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> list[list[SegmentObjects]]:
        """The segments, grouped by the worker that owns them; at least one group."""
        ...

    def places(self, org_id: uuid.UUID, parts: Sequence[Sequence[SegmentObjects]]) -> list[str | None]:
        """For each part of a query the worker that evaluates it: all workers get equally many. None: no matter."""
        ...

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        """Answer every segment once, in any order. Failures are answers too."""
        ...

    def evaluate(self, request: EvaluateRequest, check: Check) -> EvaluateAnswer | None:
        """Evaluate a fragment on the worker that owns its segments; None if no worker can at the moment."""
        ...

    def stream(self, request: EvaluateRequest, check: Check) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        """Evaluate a fragment whose value is rows. Yields the batches, then the answer without batches.

        If a worker fails, another one continues after the rows that were delivered already.
        """
        ...

    def filters(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> Iterator[tuple[uuid.UUID, bytes]]:
        """The packed filters of segments of rows, for those who want to hold them (`held_filters.py`)."""
        ...

    def close(self) -> None: ...
