"""Pruning: an ordered tuple of rules. Each drops segments that cannot match, and notes what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakerunner.model.segment import Segment
from lakerunner.query.plan.leaf import Explain, Leaf, LeafPlan, Pruned
from lakerunner.query.plan.rules.by_metric_name import by_metric_name
from lakerunner.query.plan.rules.by_signal import by_signal
from lakerunner.query.plan.rules.by_tier import by_tier
from lakerunner.query.plan.rules.by_time import by_time
from lakerunner.query.plan.rules.by_value import by_value
from lakerunner.query.plan.tiers import TierChoice

#: Returns the segments that may hold something the leaf wants, and a note for EXPLAIN. The last parameter is a check
#: that raises when the plan is no longer wanted, for rules that may take long.
Rule = Callable[[Leaf, Sequence[Segment], Callable[[], object]], tuple[Sequence[Segment], str]]

RAW_ONLY = TierChoice()
#: Cheap rules first: each sees only what the rules before it kept.
RULES: tuple[Rule, ...] = (by_signal, by_time, by_metric_name, by_value)


def prune(
    leaf: Leaf,
    segments: Sequence[Segment],
    looked_up_in: str = "index",
    check: Callable[[], object] = lambda: None,
    tiers: TierChoice = RAW_ONLY,
) -> LeafPlan:
    """The segments that every rule keeps, with a record of what each rule did."""
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
    return LeafPlan(leaf, segments, explain)


def _bytes(segments: Sequence[Segment]) -> int:
    return sum([segment.size_bytes for segment in segments])
