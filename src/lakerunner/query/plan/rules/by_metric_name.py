"""Keeps segments that may hold a metric with an accepted name, classic names of histograms included."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.segment import Segment
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series.classic_names import VARIANTS, base_names
from lakerunner.query.series.matchers import Matcher, MatchKind, accepting

_COLUMN = "metric_name"


def by_metric_name(
    leaf: Leaf, segments: Sequence[Segment], check: Callable[[], object]
) -> tuple[Sequence[Segment], str]:
    matchers = [matcher for matcher in leaf.matchers if matcher.name == METRIC_NAME]
    if not matchers:
        return segments, "any name"
    accepts = _accepting(matchers, check)
    exact = next((matcher.value for matcher in matchers if matcher.kind is MatchKind.EQUAL), None)
    if exact is None:
        kept = [segment for segment in segments if _may_hold_any(segment, accepts)]
    else:
        names = [name for name in base_names(exact) if accepts(name)]
        kept = [segment for segment in segments if _may_hold_one(segment, names)]
    return kept, " and ".join(f"name {matcher.kind.value} {matcher.value}" for matcher in matchers)


def _accepting(matchers: Sequence[Matcher], check: Callable[[], object]) -> Callable[[str], bool]:
    """A test of stored names: is the name, or a classic name made from it, accepted? Each name is tried only once."""
    accepts = accepting(matchers, check)

    @functools.cache
    def accepts_any(stored: str) -> bool:
        return any(accepts(stored + variant) for variant in VARIANTS)

    return accepts_any


def _may_hold_any(segment: Segment, accepts: Callable[[str], bool]) -> bool:
    names = segment.pruning.values.get(_COLUMN)
    return names is None or any(map(accepts, names))


def _may_hold_one(segment: Segment, wanted: Sequence[str]) -> bool:
    """Whether the segment may hold one of a few names. Most queries name their metric, so this must be quick."""
    names = segment.pruning.values.get(_COLUMN)
    if names is not None:
        return any(name in names for name in wanted)
    bounds = segment.pruning.bounds.get(_COLUMN)
    return bounds is None or any(bounds[0] <= name <= bounds[1] for name in wanted)
