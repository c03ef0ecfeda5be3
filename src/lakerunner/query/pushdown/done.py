"""What came of an errand: the part's value, and what each segment took."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakerunner.query.fanout.answer import Cost, SegmentAnswer
from lakerunner.query.promql.part import Evaluated, Part
from lakerunner.query.series import block_arrow as block_wire
from lakerunner.query.vectors.annotations import Annotations


@dataclass(frozen=True, slots=True)
class Done:
    evaluated: Evaluated
    #: Without samples: their costs only.
    answers: Sequence[SegmentAnswer]
    worker: str
    #: What it took of the worker's cores.
    cpu_s: float

    @classmethod
    def of(cls, part: Part, batches: Sequence[pa.RecordBatch], note: Mapping[str, Any], worker: str) -> Done:
        block = block_wire.from_batches(batches, len(part.times))
        answers = []
        for told in note["costs"]:
            segment_id = uuid.UUID(told.pop("segment"))
            answers.append(SegmentAnswer(segment_id, cost=Cost(**told)))
        notes = Annotations.from_json(part.text, note["notes"])
        return cls(Evaluated(block, notes, int(note["samples"])), answers, worker, float(note["cpu_s"]))
