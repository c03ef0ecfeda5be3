"""What workers answer: of a scan, each segment's samples or its failure; of an evaluation, the value and its costs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from lakerunner.query.fanout.protocol import EvaluateRequest, ScanRequest, SegmentObjects
from lakerunner.query.scan.samples.runs import Samples

#: Raises when the answer is no longer wanted.
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What answering took."""

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
    """`samples` (in parts) or `table`, by the kind of the request; neither where there is an `error`."""

    segment_id: uuid.UUID
    samples: Sequence[Samples] = ()
    table: pa.Table | None = None
    cost: Cost = field(default_factory=Cost)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class EvaluateAnswer:
    """The batches and the note of a fragment's language, and what evaluating it took."""

    batches: Sequence[pa.RecordBatch]
    note: Mapping[str, Any]
    #: The worker's address.
    worker: str
    #: Seconds of the worker's cores.
    cpu_s: float
    #: One per segment and select, without samples.
    costs: Sequence[SegmentAnswer]

    @classmethod
    def of_note(cls, note: Mapping[str, Any], worker: str, batches: Sequence[pa.RecordBatch] = ()) -> EvaluateAnswer:
        """From what an evaluation says after its last batch."""
        costs = []
        for cost in note["costs"]:
            fields = {name: value for name, value in cost.items() if name != "segment"}
            costs.append(SegmentAnswer(uuid.UUID(cost["segment"]), cost=Cost(**fields)))
        return cls(batches, note, worker, float(note["cpu_s"]), costs)


class Workers(Protocol):
    """Processes that scan and evaluate. Safe to share between threads."""

    @property
    def count(self) -> int:
        """How many workers there are to evaluate fragments; 0 where the caller has to."""
        ...

    def shares(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> list[list[SegmentObjects]]:
        """The segments by the worker that has them; at least one share."""
        ...

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        """Answer every segment once, in any order. Failures are answers too."""
        ...

    def evaluate(self, request: EvaluateRequest, check: Check) -> EvaluateAnswer | None:
        """Evaluate a fragment on the worker that has its segments. None where no worker can now."""
        ...

    def stream(self, request: EvaluateRequest, check: Check) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        """Evaluate a fragment whose value is rows, batch by batch; last comes the answer without batches.

        A worker that fails is replaced by another, which goes on after the rows that were given already.
        """
        ...

    def close(self) -> None: ...
