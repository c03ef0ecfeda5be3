"""Series in memory: what is selected, and what is refused."""

from __future__ import annotations

import time

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.memory_source import MemorySource


def _matcher(name: str, kind: str, value: str) -> Matcher:
    return Matcher(name, MatchKind(kind), value)


@pytest.fixture
def source() -> MemorySource:
    made = MemorySource()
    made.add(LabelSet.of({"__name__": "m", "a": "x"}), [10, 20, 30], [1.0, 2.0, 3.0])
    made.add(LabelSet.of({"__name__": "m", "a": "y"}), [10, 20], [4.0, 5.0])
    made.add(LabelSet.of({"__name__": "n"}), [10], [6.0])
    return made


def test_matchers_and_times(source: MemorySource) -> None:
    batch = source.select([_matcher("__name__", "=", "m")], 20, 30)
    assert [labels.get("a") for labels in batch.labels] == ["x", "y"]
    assert batch.offsets.tolist() == [0, 2, 3]
    assert batch.timestamps_ms.tolist() == [20, 30, 20]
    assert batch.values.tolist() == [2.0, 3.0, 5.0]


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        (("a", "=", ""), ["n"]),
        (("a", "!=", "x"), ["m", "n"]),
        (("a", "=~", "x|y"), ["m", "m"]),
        (("a", "!~", "x.*"), ["m", "n"]),
        (("a", "=~", "(?i)X"), ["m"]),
        (("a", "=~", "x?"), ["m", "n"]),
        (("__name__", "=~", "[mn]"), ["m", "m", "n"]),
    ],
)
def test_kinds_of_matchers(source: MemorySource, matcher: tuple[str, str, str], expected: list[str]) -> None:
    batch = source.select([_matcher(*matcher)], 0, 100)
    assert [labels.get("__name__") for labels in batch.labels] == expected


def test_patterns_are_anchored_and_newlines_are_characters() -> None:
    assert not _matcher("a", "=~", "b").matches("abc")
    assert _matcher("a", "=~", "a.c").matches("a\nc")
    assert not _matcher("a", "=~", "a|b").matches("ab")


def test_no_pattern_is_slow() -> None:
    begin = time.monotonic()
    assert not _matcher("a", "=~", "(a*)*(a*)*(a*)*b").matches("a" * 5_000)
    assert time.monotonic() - begin < 1


def test_samples_are_added_in_order_and_once(source: MemorySource) -> None:
    labels = LabelSet.of({"__name__": "n"})
    source.add(labels, [5, 40], [0.0, 7.0])
    assert source.select([_matcher("__name__", "=", "n")], 0, 100).values.tolist() == [0.0, 6.0, 7.0]
    with pytest.raises(BadInput, match="do not ascend"):
        source.add(labels, [40], [8.0])
