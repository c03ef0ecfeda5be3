"""Passing segments by: never one that could hold something."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.segment import Pruning, Segment
from lakerunner.model.time import NS_PER_MS, TimeRange
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.prune import RULES, prune
from lakerunner.query.series.matchers import Matcher, MatchKind

ORG = uuid.UUID(int=1)


def _segment(names: tuple[str, ...] | None, start_ms: int = 0, end_ms: int = 100, **other: object) -> Segment:
    bounds = {} if not other.pop("bounds", True) else {"metric_name": ("aaa", "mmm")}
    pruning = Pruning({} if names is None else {"metric_name": names}, bounds)
    fields = {"org_id": ORG, "signal": "metrics", **other}
    return Segment(
        segment_id=uuid.uuid4(),
        collector="c",
        time_range=TimeRange(start_ms * NS_PER_MS, end_ms * NS_PER_MS),
        row_count=1,
        size_bytes=10,
        pruning=pruning,
        **fields,  # type: ignore[arg-type]
    )


def _leaf(*matchers: Matcher, start_ms: int = 10, end_ms: int = 20) -> Leaf:
    return Leaf(ORG, matchers, start_ms, end_ms)


def _name(text: str, kind: MatchKind = MatchKind.EQUAL) -> Matcher:
    return Matcher("__name__", kind, text)


@pytest.mark.parametrize(
    ("matchers", "kept"),
    [
        ([], True),
        ([_name("up")], True),
        ([_name("down")], False),
        ([_name("latency_bucket")], True),
        ([_name("latency_sum")], True),
        ([_name("latency_total")], False),
        ([_name("lat.*_count", MatchKind.REGEX)], True),
        ([_name("up|latency", MatchKind.NOT_REGEX)], True),
        ([_name("up.*|latency.*", MatchKind.NOT_REGEX)], False),
        ([_name("up"), _name("up", MatchKind.NOT_EQUAL)], False),
        ([Matcher("job", MatchKind.EQUAL, "x")], True),
    ],
)
def test_by_name(matchers: list[Matcher], kept: bool) -> None:
    assert bool(prune(_leaf(*matchers), [_segment(("latency", "up"))]).segments) is kept


@pytest.mark.parametrize(("name", "kept"), [("bbb", True), ("zzz", False), ("zzz_sum", False), ("mmm_sum", True)])
def test_too_many_names_to_list_leave_their_bounds(name: str, kept: bool) -> None:
    assert bool(prune(_leaf(_name(name)), [_segment(None)]).segments) is kept
    assert prune(_leaf(_name(name)), [_segment(None, bounds=False)]).segments
    assert prune(_leaf(_name("z.*", MatchKind.REGEX)), [_segment(None)]).segments


@given(st.integers(-5, 30), st.integers(0, 30), st.integers(0, 30), st.integers(1, 10))
def test_by_time_keeps_exactly_what_overlaps(start: int, length: int, first: int, width: int) -> None:
    segment = _segment(("up",), first, first + width)
    inside = any(start <= ms <= start + length for ms in range(first, first + width))
    assert bool(prune(_leaf(start_ms=start, end_ms=start + length), [segment]).segments) is inside


def test_other_orgs_signals_and_tiers_are_out() -> None:
    mine = _segment(("up",))
    others = [_segment(("up",), org_id=uuid.UUID(int=2)), _segment(None, signal="logs"), _segment(None, tier_s=60)]
    plan = prune(_leaf(), [mine, *others])
    assert list(plan.segments) == [mine]
    explain = plan.explain
    assert (explain.considered, explain.considered_bytes, explain.segments, explain.segment_bytes) == (4, 40, 1, 10)
    assert [step.rule for step in explain.steps] == [rule.__name__ for rule in RULES]
    assert all(step.note for step in explain.steps)
