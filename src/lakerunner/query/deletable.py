"""What may be deleted on request: a selector of each signal's language, as a condition that decides every row exactly.

Metrics: a series selector of PromQL. Logs: a selector of LogQL with line filters. Traces: matchers on columns and
attributes. Everything else is refused: a deletion must never take more, or less, than its author read.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.index.database import Database
from lakerunner.index.segments import live_segments
from lakerunner.model.deletion import DeletionRequest
from lakerunner.model.errors import BadInput
from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS, METRICS, TRACES, signal_named
from lakerunner.model.time import MAX_TIME_NS, TimeRange
from lakerunner.query.logql.deletable import log_predicate, span_predicate
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.rules.by_metric_name import by_metric_name
from lakerunner.query.plan.rules.by_value import by_value
from lakerunner.query.promql.deletable import series_matchers
from lakerunner.query.scan.hidden import matchers_condition, predicate_condition
from lakerunner.query.series.classic_names import base_names
from lakerunner.query.series.matchers import Matcher, MatchKind


@dataclass(frozen=True, slots=True)
class Deletable:
    """A selector as data, and the matchers by which segments are chosen."""

    condition: str
    matchers: tuple[Matcher, ...]


def deletable(signal: str, selector: str) -> Deletable:
    """The condition of a selector. Refuses, with the position, what cannot be decided exactly."""
    if signal == METRICS.name:
        matchers = series_matchers(selector)
        return Deletable(matchers_condition(matchers), matchers)
    if signal == LOGS.name:
        predicate, matchers = log_predicate(selector)
        return Deletable(predicate_condition(predicate), matchers)
    if signal == TRACES.name:
        predicate, matchers = span_predicate(selector)
        return Deletable(predicate_condition(predicate), matchers)
    raise BadInput(f"cannot delete rows of {signal!r}: there is no such signal", hint="name logs, metrics or traces")


def deletion_request(
    database: Database, org_id: uuid.UUID, signal: str, selector: str, start_ns: int, end_ns: int, created_by: str
) -> tuple[DeletionRequest, Callable[[Segment], bool]]:
    """What to store for a deletion, and which segments may hold its rows. The time range is half-open."""
    signal_named(signal)
    start_ns, end_ns = max(0, start_ns), min(end_ns, MAX_TIME_NS)
    if start_ns >= end_ns:
        raise BadInput("cannot delete rows: the end is not after the start")
    found = deletable(signal, selector)
    if signal == METRICS.name:
        _refuse_classic(database, org_id, found.matchers, TimeRange(start_ns, end_ns))
    request = DeletionRequest(org_id, signal, selector, found.condition, start_ns, end_ns, created_by)

    leaf = Leaf(signal, start_ns, end_ns, found.matchers)

    def may_hold(segment: Segment) -> bool:
        return all(rule(leaf, [segment], lambda: None)[0] for rule in (by_metric_name, by_value))

    return request, may_hold


def _refuse_classic(
    database: Database, org_id: uuid.UUID, matchers: tuple[Matcher, ...], time_range: TimeRange
) -> None:  # fmt: skip
    """Refuse the name of a classic series that is made of a stored histogram: it has no samples of its own."""
    name = next((each.value for each in matchers if each.name == METRIC_NAME and each.kind is MatchKind.EQUAL), None)
    bases = [base for base in base_names(name) if base != name] if name else []
    if not bases:
        return
    segments = database.read(lambda tx: live_segments(tx, org_id, METRICS.name, time_range))
    stored = {each for segment in segments for each in segment.pruning.values.get("metric_name", ())}
    found = next((base for base in bases if base in stored), None)
    if found is not None and name not in stored:
        raise BadInput(
            f"cannot delete {name}: its series are made of the histogram {found} when they are read",
            hint=f"delete {found}, which deletes all its buckets, sums and counts",
        )
