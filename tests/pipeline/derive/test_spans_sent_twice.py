"""A rule counts a span twice that was sent twice, and TraceQL once: such spans are holes of every rule."""

from __future__ import annotations

import uuid

import pyarrow as pa

from lakerunner.model.signals import TRACES
from lakerunner.pipeline.derive.rule_set import RuleEvaluation, RuleSet, RuleVersion, Trouble
from lakerunner.rules.definitions import Materialize

RULE = RuleVersion(1, 1, Materialize("spans_total", "traces", "{ }", ("name",)))


def spans(*ids: tuple[str, str, int]) -> pa.Table:
    rows = [
        {"trace_id": trace, "span_id": span, "start_timestamp": start, "duration_ns": 5, "name": "x"}
        for trace, span, start in ids
    ]
    return pa.Table.from_pylist(rows, schema=TRACES.rows.schema())


def troubles(*pieces: pa.Table) -> tuple[Trouble, ...]:
    evaluation = RuleEvaluation(RuleSet(uuid.UUID(int=1), "traces", 1, (RULE,)))
    for piece in pieces:
        evaluation.add(piece)
    return evaluation.result(0, bytes(16)).troubles


def test_a_span_twice_in_one_piece() -> None:
    (found,) = troubles(spans(("a", "1", 10), ("a", "1", 10), ("b", "1", 10)))
    assert (found.first_ns, found.last_ns, found.reason) == (10, 10, "spans were sent twice")


def test_a_span_in_two_pieces_of_a_segment() -> None:
    (found,) = troubles(spans(("a", "1", 10), ("b", "2", 20)), spans(("b", "2", 20), ("c", "3", 20)))
    assert found.first_ns == 20


def test_spans_that_only_begin_together() -> None:
    assert not troubles(spans(("a", "1", 10), ("a", "2", 10), ("b", "1", 10)))
