"""Runs the cases of the pruning rules: see README.md for their form."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakerunner.model.segment import Pruning, Segment
from lakerunner.model.time import NS_PER_MS, TimeRange
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.prune import RULES
from lakerunner.query.series.matchers import Matcher, MatchKind

FOLDER = Path(__file__).parent
ORG = uuid.UUID(int=1)
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_LEAF = re.compile(r"\{(.*)\}(.*)")
_BOUNDS = ":bounds"


@dataclass(frozen=True)
class Case:
    place: str
    rule: str
    segments: dict[str, Segment]
    leaf: Leaf
    kept: list[str]
    note: str


def _fields(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(text))


def _times(text: str) -> tuple[int, int]:
    start, end = text.split("..")
    return int(start), int(end)


def _segment(fields: dict[str, str]) -> Segment:
    start_ms, end_ms = _times(fields.pop("time", "0..100"))
    signal, tier_s = fields.pop("signal", "metrics"), int(fields.pop("tier", "0"))
    values: dict[str, tuple[str, ...]] = {}
    bounds: dict[str, tuple[str, str]] = {}
    for column, text in fields.items():
        listed = tuple(text.split(","))
        if column.endswith(_BOUNDS):
            least, greatest = listed
            bounds[column.removesuffix(_BOUNDS)] = (least, greatest)
        else:
            values[column] = listed
    return Segment(
        segment_id=uuid.uuid4(),
        org_id=ORG,
        collector="c",
        signal=signal,
        tier_s=tier_s,
        time_range=TimeRange(start_ms * NS_PER_MS, end_ms * NS_PER_MS),
        row_count=1,
        size_bytes=10,
        pruning=Pruning(values, bounds),
    )


def _leaf(text: str) -> Leaf:
    parts = _LEAF.fullmatch(text)
    assert parts is not None, text
    matchers = tuple(Matcher(name, MatchKind(kind), value) for name, kind, value in _MATCHER.findall(parts[1]))
    assert ", ".join(f'{one.name}{one.kind.value}"{one.value}"' for one in matchers) == parts[1], text
    fields = _fields(parts[2])
    start_ms, end_ms = _times(fields.pop("time", "0..100"))
    signal = fields.pop("signal", "metrics")
    assert not fields, text
    return Leaf(signal, start_ms * NS_PER_MS, (end_ms + 1) * NS_PER_MS, matchers)


def _cases(path: Path) -> Iterator[Case]:
    segments: dict[str, Segment] = {}
    leaf: tuple[str, Leaf] | None = None
    kept: list[str] | None = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        if word == "clear":
            segments = {}
        elif word == "segment":
            name, _, fields = rest.partition(" ")
            segments = {**segments, name: _segment(_fields(fields))}
        elif word == "leaf":
            assert leaf is None, f"{path.name}:{number}: a leaf without `keep` and `note` before this one"
            leaf = f"{path.stem}:{number}", _leaf(rest)
        elif word == "keep":
            kept = [] if rest == "nothing" else rest.split()
        elif word == "note":
            assert leaf is not None and kept is not None, f"{path.name}:{number}: a note without `leaf` and `keep`"
            yield Case(leaf[0], path.stem, segments, leaf[1], kept, rest)
            leaf, kept = None, None
        else:
            assert not word or word.startswith("#"), f"{path.name}:{number}: what is {word!r}?"
    assert leaf is None, f"{path.name}: the last leaf has no note"


CASES = [case for path in sorted(FOLDER.glob("*.txt")) for case in _cases(path)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.place)
def test_case(case: Case) -> None:
    (rule,) = [rule for rule in RULES if rule.__name__ == case.rule]
    kept, note = rule(case.leaf, list(case.segments.values()), lambda: None)
    names = {segment.segment_id: name for name, segment in case.segments.items()}
    assert [names[segment.segment_id] for segment in kept] == case.kept
    assert note.strip() == case.note


@pytest.mark.parametrize("rule", [rule.__name__ for rule in RULES])
def test_every_rule_has_cases_in_which_it_keeps_and_in_which_it_prunes(rule: str) -> None:
    cases = [case for case in CASES if case.rule == rule]
    assert any(case.kept for case in cases)
    assert any(len(case.kept) < len(case.segments) for case in cases)
