"""Rows of small answers in the API's memory: no worker is asked again what it found in the same segments.

Segments never change, so which rows of a list of segments satisfy a query is a fact. The index is asked for every
query: as long as it names the same segments, the rows that were found in them are the answer. An answer that ends at
its limit does not depend on how far back the query would have looked, so a range that moves on finds it again too.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakerunner.query.fanout.protocol import SegmentObjects
from lakerunner.query.language import RowPlan
from lakerunner.query.metrics import ROWS_HELD
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.runtime.byte_lru import ByteLru

#: An answer may take this share of the memory.
_LARGEST_SHARE = 64
#: Beside its batches.
_ENTRY_BYTES = 2_048
#: Of longer lists, finding out what times they span takes as long as what is saved. Longer texts are not remembered.
_MAX_SEGMENTS, _MAX_TEXT = 256, 1_024


@dataclass(frozen=True, slots=True)
class RowQuestion:
    """What decides about the rows of an answer, besides how far the query looks from its first row on."""

    name: Hashable
    #: As the catalog keeps them: the same list is the same object.
    segments: tuple[SegmentObjects, ...]
    plan: RowPlan
    #: How far the query looks, and no further than there are rows: the start of its range if the newest are first.
    far_ns: int


@dataclass(frozen=True, slots=True)
class _Held:
    #: Kept so that no other list gets the name of this one.
    segments: tuple[SegmentObjects, ...]
    batches: Sequence[pa.RecordBatch]
    #: The time of the last row, if it is the last one because of the limit.
    last_ns: int


class HeldRows:
    """The rows that one API process holds, within `limit_bytes`. Safe to share between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._held: ByteLru[_Held] = ByteLru(limit_bytes)
        self._largest_bytes = limit_bytes // _LARGEST_SHARE

    def question(self, plan: RowPlan, segments: Sequence[SegmentObjects]) -> RowQuestion | None:
        """What to ask for the rows of a plan; None if they may not be held."""
        if not plan.repeatable or len(plan.canonical) > _MAX_TEXT:
            return None
        if not isinstance(segments, tuple) or not 0 < len(segments) <= _MAX_SEGMENTS:
            return None
        scan = plan.scan
        first_ns = max(scan.start_ns, min([each.start_ns for each in segments]))
        end_ns = min(scan.end_ns, max([each.end_ns for each in segments]))
        near_ns, far_ns = (end_ns, first_ns) if scan.newest_first else (first_ns, end_ns)
        name = (
            id(segments), near_ns, plan.language, plan.canonical, scan.limit, scan.newest_first, scan.columns,
        )  # fmt: skip
        return RowQuestion(name, segments, plan, far_ns)

    def find(self, question: RowQuestion) -> Sequence[pa.RecordBatch] | None:
        """The batches of the answer, in order; None: they are not held."""
        held = self._held.get(question.name)
        if held is None or not _reaches(question, held.last_ns):
            held = self._held.get((question.name, question.far_ns))
        if held is None or held.segments is not question.segments:
            return None
        ROWS_HELD.inc()
        return held.batches

    def offer(self, question: RowQuestion, batches: Sequence[pa.RecordBatch]) -> None:
        """Hold the whole answer to a question, if that was asked before."""
        if not self._held.ask(question.name):
            return
        size_bytes = _ENTRY_BYTES + sum(batch.nbytes for batch in batches)
        if size_bytes > self._largest_bytes:
            return
        plan = question.plan
        # The columns of an answer may depend on all segments that the query looks at, if the plan does not know them.
        ends_at_limit = plan.schema is not None and sum(batch.num_rows for batch in batches) == plan.scan.limit != 0
        last_ns = _last_ns(plan.scan, batches) if ends_at_limit else 0
        name = question.name if ends_at_limit else (question.name, question.far_ns)
        self._held.put(name, _Held(question.segments, batches, last_ns), size_bytes)


def _reaches(question: RowQuestion, last_ns: int) -> bool:
    """Whether the query looks as far as the last row that was found for another range."""
    return question.far_ns <= last_ns if question.plan.scan.newest_first else last_ns < question.far_ns


def _last_ns(scan: RowScan, batches: Sequence[pa.RecordBatch]) -> int:
    last = [batch for batch in batches if batch.num_rows][-1]
    return int(last.column(scan.signal.time_column)[-1].value)
