"""Runs the cases of the tier rule: see README.md for their form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lakerunner.model.time import NS_PER_MS
from lakerunner.query.plan.leaf import Piece
from lakerunner.query.plan.tiers import TierStretch, choose_tiers
from lakerunner.query.promql.language import LANGUAGE
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions
from lakerunner.serve.params import parse_span_ms, parse_tier_s

FOLDER = Path(__file__).parent
DAY_MS = 86_400_000
#: The first day.
START_MS = 10 * DAY_MS
_TIME = r"d\d+ \d\d:\d\d(?::\d\d)?"
_RANGE = re.compile(rf"({_TIME}) \.\. ({_TIME})")
_QUERY = re.compile(rf"(.*?)\s+{_RANGE.pattern} step (\S+)(.*)")


@dataclass
class Case:
    place: str
    text: str
    times: QueryTimes
    options: EngineOptions
    stretches: tuple[TierStretch, ...]
    pieces: list[list[Piece]] = field(default_factory=lambda: [[]])
    why: list[str] = field(default_factory=list)
    miss: list[str] = field(default_factory=list)


def _ms(text: str) -> int:
    day, clock = text[1:].split()
    hours, minutes, *seconds = map(int, clock.split(":"))
    return START_MS + int(day) * DAY_MS + ((hours * 60 + minutes) * 60 + sum(seconds)) * 1000


def _between(text: str) -> tuple[int, int]:
    found = _RANGE.search(text)
    assert found is not None, text
    return _ms(found[1]), _ms(found[2])


def _case(place: str, text: str, stretches: list[TierStretch]) -> Case:
    found = _QUERY.fullmatch(text)
    assert found is not None, text
    words = found[5].split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    options = EngineOptions(
        lookback_ms=parse_span_ms("lookback", given.get("lookback", "5m")),
        max_tier_s=parse_tier_s("max_tier", given.get("max_tier", "1d")),
    )
    times = QueryTimes(_ms(found[2]), _ms(found[3]), parse_span_ms("step", found[4]))
    return Case(place, found[1], times, options, tuple(stretches))


def _cases(path: Path) -> Iterator[Case]:
    stretches: list[TierStretch] = []
    case: Case | None = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if word in ("window", "sealed"):
            start_ms, end_ms = _between(rest)
            tier_s = parse_tier_s("tier", rest.split()[0])
            stretches.append(TierStretch(tier_s, start_ms * NS_PER_MS, end_ms * NS_PER_MS, word == "sealed"))
        elif word == "clear":
            stretches = []
        elif word == "query":
            if case is not None:
                yield case
            case = _case(f"{path.stem}:{number}", rest, stretches)
        elif word:
            assert case is not None or word.startswith("#"), f"{path.name}:{number}: {line!r} before a query"
            if case is not None:
                _expect(case, word, rest)
    if case is not None:
        yield case


def _expect(case: Case, word: str, rest: str) -> None:
    if word == "read":
        start_ms, end_ms = _between(rest)
        case.pieces[-1].append(Piece(parse_tier_s("tier", rest.split()[0]), start_ms + 1, end_ms))
    elif word == "next":
        case.pieces.append([])
    elif word in ("why", "miss"):
        getattr(case, word).append(rest)
    else:
        assert word.startswith("#"), f"{case.place}: what is {word!r}?"


CASES = [case for path in sorted(FOLDER.glob("*.txt")) for case in _cases(path)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.place)
def test_case(case: Case) -> None:
    plan = LANGUAGE.compile(case.text, case.times, case.options)
    choices = [choose_tiers(leaf, case.stretches) for leaf in plan.leaves]
    found = [
        list(choice.pieces) or [Piece(0, leaf.start_ms, leaf.end_ms)]
        for leaf, choice in zip(plan.leaves, choices, strict=True)
    ]
    assert found == case.pieces
    reasons = " | ".join(reason for choice in choices for reason in choice.reasons)
    assert all(sentence in reasons for sentence in case.why), reasons
    missed = " | ".join(sentence for choice in choices for sentence in choice.missed)
    assert all(sentence in missed for sentence in case.miss), missed
    assert bool(missed) == bool(case.miss)
