"""All pruning rules together: in order, each after the one before, with an account. Single rules: see rules/*.txt."""

from __future__ import annotations

import uuid
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.segment import Pruning, Segment
from lakerunner.model.time import NS_PER_MS, TimeRange
from lakerunner.query.plan.kept_segments import KeptSegments
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.prune import RULES, prune
from lakerunner.query.series.matchers import Matcher, MatchKind

UP = Matcher("__name__", MatchKind.EQUAL, "up")


def _segment(name: str, start_ms: int = 0, end_ms: int = 100, signal: str = "metrics", tier_s: int = 0) -> Segment:
    return Segment(
        segment_id=uuid.uuid4(),
        org_id=uuid.UUID(int=1),
        collector="c",
        signal=signal,
        tier_s=tier_s,
        time_range=TimeRange(start_ms * NS_PER_MS, end_ms * NS_PER_MS),
        row_count=1,
        size_bytes=10,
        pruning=Pruning({"metric_name": (name,)}),
    )


@given(st.integers(-5, 30), st.integers(0, 30), st.integers(0, 30), st.integers(1, 10))
def test_a_segment_is_kept_exactly_when_its_time_overlaps(start: int, length: int, first: int, width: int) -> None:
    segment = _segment("up", first, first + width)
    inside = any(start <= ms <= start + length for ms in range(first, first + width))
    assert bool(prune(Leaf.of_samples((), start, start + length), [segment]).segments) is inside


def test_each_rule_sees_what_the_rules_before_it_kept() -> None:
    mine = _segment("up")
    others = [_segment("up", signal="logs"), _segment("up", tier_s=60), _segment("up", 50, 100), _segment("down")]
    plan = prune(Leaf.of_samples((UP,), 10, 20), [mine, *others])
    assert list(plan.segments) == [mine]
    explain = plan.explain
    assert (explain.considered, explain.considered_bytes, explain.segments, explain.segment_bytes) == (5, 50, 1, 10)
    assert [step.rule for step in explain.steps] == ["by_tier", *(rule.__name__ for rule in RULES)]
    assert [(step.before, step.kept, step.pruned_bytes) for step in explain.steps] == [
        (5, 4, 10),
        (4, 3, 10),
        (3, 2, 10),
        (2, 1, 10),
        (1, 1, 0),
    ]
    assert all(step.note for step in explain.steps)


def _log_segment(service: str, first: int, width: int) -> Segment:
    plain = _segment("", first, first + width, signal="logs")
    return replace(plain, pruning=Pruning({"service_name": (service,)}))


_SERVICES = st.sampled_from(["pay", "cart"])
_TIMES = st.tuples(st.integers(0, 30), st.integers(1, 30))


@given(st.lists(st.tuples(_SERVICES, _TIMES), max_size=4), st.lists(st.tuples(_SERVICES, _TIMES), max_size=5))
def test_a_list_that_is_kept_is_pruned_as_any_other(
    stored: list[tuple[str, tuple[int, int]]], asked: list[tuple[str, tuple[int, int]]]
) -> None:
    segments = [_log_segment(service, *times) for service, times in stored]
    kept = KeptSegments(segments)
    for service, (start, length) in asked:
        matchers = (Matcher("service_name", MatchKind.EQUAL, service),)
        leaf = Leaf("logs", start * NS_PER_MS, (start + length) * NS_PER_MS, matchers)
        assert prune(leaf, kept) == prune(leaf, segments)


def test_what_is_made_of_a_list_is_made_once_unless_the_list_is_long() -> None:
    for count, times in ((2, 1), (2_000, 3)):
        numbers = iter(range(9))
        kept = KeptSegments([_segment("up")] * count)
        for _ in range(3):
            kept.once("name", lambda numbers=numbers: next(numbers))  # type: ignore[misc]
        assert next(numbers) == times
    few = KeptSegments([_segment("up")])
    for number in range(1_000):
        few.once(number, lambda: "made")
    assert len(few._made) <= 16
