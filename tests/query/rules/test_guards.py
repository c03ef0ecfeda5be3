"""Every guard refuses what its file says, with a sentence, and nothing else refuses it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakerunner.model.compute import Compute
from lakerunner.query.language import QueryOptions, StepPlan
from lakerunner.query.languages import language
from lakerunner.query.rules.guards import GUARDS
from lakerunner.query.rules.rewriter import Considered, Rewriter
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.rules.spans import canonical_field, label_of
from lakerunner.query.series.times import QueryTimes

FOLDER = Path(__file__).parent / "guards"
_RULE = re.compile(r"rule (\w+): (logs|traces|metrics) (.*) (\w+)(?:\((\w+)\))? by (.*)")
_DEFAULT_STEPS = "0 600 60"


@dataclass(frozen=True, slots=True)
class Pair:
    """A rule and a query, and what becomes of them."""

    rule: RuleVersion
    language: str
    query: str
    steps: tuple[int, int, int]
    #: The refusal, or the query over the rule's series.
    refused: str
    answered: str
    approximate: bool


def pairs(path: Path) -> list[Pair]:
    blocks = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).strip().split("\n\n")
    return [_pair(block.strip()) for block in blocks if block.strip()]


def _pair(block: str) -> Pair:
    found = _RULE.match(block)
    assert found is not None, block
    name, signal, match, compute, field, by = found.groups()
    names = [each.strip() for each in by.split(",")]
    dimensions = tuple(
        (canonical_field(each), label_of(each)) if signal == "traces" else (each, each) for each in names
    )
    rule = RuleVersion(1, 1, name, signal, match, dimensions, Compute(compute), field or "")
    rest = dict(line.split(": ", 1) for line in block.splitlines()[1:])
    asked = next(key for key in rest if key.startswith("query "))
    start, end, step = map(int, rest.get("steps", _DEFAULT_STEPS).split())
    return Pair(
        rule,
        asked.split()[1],
        rest[asked],
        (start, end, step),
        rest.get("refused", ""),
        rest.get("answered", ""),
        "approximate" in rest,
    )


def considered(pair: Pair, rewriter: Rewriter) -> Considered:
    start, end, step = pair.steps
    plan = language(pair.language).compile(
        pair.query, QueryTimes(start * 1000, end * 1000, step * 1000), QueryOptions(approximate=pair.approximate)
    )
    assert isinstance(plan, StepPlan)
    found = rewriter.consider(plan, [pair.rule])
    assert found is not None
    return found


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_a_guard_refuses_what_its_file_says(guard: object) -> None:
    name = guard.__name__  # type: ignore[attr-defined]
    others = tuple(each for each in GUARDS if each is not guard)
    refusals = 0
    for pair in pairs(FOLDER / f"{name}.txt"):
        found = considered(pair, Rewriter())
        assert [note.refusal for note in found.refused] == ([pair.refused] if pair.refused else []), pair
        assert [option.target.promql for option in found.options] == ([pair.answered] if pair.answered else []), pair
        if pair.refused:
            refusals += 1
            # Without the guard, another sentence or none: it is this guard that says it.
            try:
                weaker = considered(pair, Rewriter(others))
            except AssertionError:
                # What the guard promises is taken for granted afterwards.
                continue
            assert pair.refused not in [note.refusal for note in weaker.refused], pair
    assert refusals, f"{name}.txt has no refusal"


def test_every_file_is_of_a_guard() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {guard.__name__ for guard in GUARDS}
