"""Pruning: an ordered tuple of rules. Each drops segments that cannot match, and notes what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakerunner.model.segment import Segment
from lakerunner.query.plan.kept_segments import KeptSegments
from lakerunner.query.plan.leaf import Explain, Leaf, LeafPlan, Pruned
from lakerunner.query.plan.rules.by_metric_name import by_metric_name
from lakerunner.query.plan.rules.by_signal import by_signal
from lakerunner.query.plan.rules.by_tier import by_tier
from lakerunner.query.plan.rules.by_time import by_time, times_note
from lakerunner.query.plan.rules.by_value import by_value
from lakerunner.query.plan.tiers import TierChoice

#: Returns the segments that may hold something the leaf wants, and a note for EXPLAIN. The last parameter is a check
#: that raises when the plan is no longer wanted, for rules that may take long.
Rule = Callable[[Leaf, Sequence[Segment], Callable[[], object]], tuple[Sequence[Segment], str]]

RAW_ONLY = TierChoice()
#: Cheap rules first: each sees only what the rules before it kept.
RULES: tuple[Rule, ...] = (by_signal, by_time, by_metric_name, by_value)
#: Where the record of a plan has the rule about times: tiers are first.
_TIMES_STEP = 1 + RULES.index(by_time)


def prune(
    leaf: Leaf,
    segments: Sequence[Segment],
    looked_up_in: str = "index",
    check: Callable[[], object] = lambda: None,
    tiers: TierChoice = RAW_ONLY,
) -> LeafPlan:
    """The segments that every rule keeps, with a record of what each rule did."""
    if tiers is RAW_ONLY and isinstance(segments, KeptSegments) and segments.all_overlap(leaf.time_range):
        # Then the rest depends on the segments and the matchers alone.
        known = segments.once((leaf.signal, leaf.matchers), lambda: _pruned(leaf, segments, looked_up_in, check, tiers))
        return known if known.leaf is leaf else _at_times_of(leaf, known, looked_up_in)
    return _pruned(leaf, segments, looked_up_in, check, tiers)


def _pruned(
    leaf: Leaf, segments: Sequence[Segment], looked_up_in: str, check: Callable[[], object], tiers: TierChoice
) -> LeafPlan:
    considered, considered_bytes = len(segments), _bytes(segments)
    kept_bytes, steps = considered_bytes, []

    def note(rule: str, kept: Sequence[Segment], what: str) -> Sequence[Segment]:
        nonlocal kept_bytes
        left_bytes = kept_bytes if len(kept) == len(segments) else _bytes(kept)
        steps.append(Pruned(rule, len(segments), len(kept), kept_bytes - left_bytes, what))
        kept_bytes = left_bytes
        return kept

    segments = note(by_tier.__name__, *by_tier(segments, tiers.pieces))
    for rule in RULES:
        segments = note(rule.__name__, *rule(leaf, segments, check))
    explain = Explain(
        leaf, considered, considered_bytes, tuple(steps), len(segments), kept_bytes, looked_up_in,
        tiers.pieces, tiers.reasons, tiers.missed, frozenset([segment.tier_s for segment in segments]),
    )  # fmt: skip
    return LeafPlan(leaf, KeptSegments(segments), explain)


def _at_times_of(leaf: Leaf, known: LeafPlan, looked_up_in: str) -> LeafPlan:
    """A plan of the same segments for a leaf that differs in its times: all segments have rows of both."""
    was = known.explain
    before, after = was.steps[:_TIMES_STEP], was.steps[_TIMES_STEP + 1 :]
    of_times = was.steps[_TIMES_STEP]
    steps = (*before, Pruned(of_times.rule, of_times.before, of_times.kept, 0, times_note(leaf)), *after)
    explain = Explain(
        leaf, was.considered, was.considered_bytes, steps, was.segments, was.segment_bytes, looked_up_in,
        tiers_s=was.tiers_s,
    )  # fmt: skip
    return LeafPlan(leaf, known.segments, explain)


def _bytes(segments: Sequence[Segment]) -> int:
    return sum([segment.size_bytes for segment in segments])
