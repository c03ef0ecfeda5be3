"""Keeps segments that may hold an accepted value of a pruning column, for example the service name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakerunner.model.segment import Segment
from lakerunner.model.signals import signal_named
from lakerunner.model.signals.metrics import METRICS
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series.matchers import Matcher, MatchKind, accepting


def by_value(leaf: Leaf, segments: Sequence[Segment], check: Callable[[], object]) -> tuple[Sequence[Segment], str]:
    # Matchers of metrics apply to labels, and a label may have the same name as a pruning column.
    columns = () if leaf.signal == METRICS.name else signal_named(leaf.signal).pruning
    matchers = [matcher for matcher in leaf.matchers if matcher.name in columns]
    if not matchers:
        return segments, "no pruning column"

    tests = [(matcher.name, _test(matcher, check)) for matcher in matchers]

    def may_hold(segment: Segment) -> bool:
        # A column with too many values is absent from the index, so it may hold any. The index has null as empty text.
        values = segment.pruning.values
        return all(test(values[name]) for name, test in tests if name in values)

    kept = [segment for segment in segments if may_hold(segment)]
    return kept, " and ".join(f"{matcher.name} {matcher.kind.value} {matcher.value}" for matcher in matchers)


def _test(matcher: Matcher, check: Callable[[], object]) -> Callable[[tuple[str, ...]], bool]:
    """Whether the matcher accepts one of the values of a segment."""
    if matcher.kind is MatchKind.EQUAL:
        return lambda values: matcher.value in values
    accepts = accepting([matcher], check)
    return lambda values: any(map(accepts, values))
