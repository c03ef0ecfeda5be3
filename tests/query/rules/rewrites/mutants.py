"""Rewriters that lack one guard: random trials must notice each of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lakerunner.model.errors import LakeError
from lakerunner.query.rules.guards import GUARDS
from lakerunner.query.rules.rewriter import Rewriter
from tests.query.rules.rewrites.small_lake import SmallLake
from tests.query.rules.rewrites.trial import answer, asked, difference, plan_of, rewritten

COVERAGE = "coverage"
#: A rule of another signal has other fields and conditions, so that random rules never get past the other guards.
UNREACHABLE = frozenset({"same_signal"})


def mutants() -> dict[str, Rewriter]:
    """By the name of what they lack."""
    weaker = {guard.__name__: Rewriter(tuple(each for each in GUARDS if each is not guard)) for guard in GUARDS}
    return {COVERAGE: Rewriter(), **{name: each for name, each in weaker.items() if name not in UNREACHABLE}}


def survivors(folder: Path, seeds: Iterable[int]) -> set[str]:
    """The mutants whose answers equal the raw ones in all trials."""
    alive = mutants()
    for seed in seeds:
        if not alive:
            break
        lake = SmallLake(folder / str(seed))
        try:
            for name in _killed(seed, lake, alive):
                alive.pop(name, None)
        finally:
            lake.close()
    return set(alive)


def _killed(seed: int, lake: SmallLake, alive: dict[str, Rewriter]) -> set[str]:
    found: set[str] = set()
    for rules, query in asked(seed, lake):
        try:
            plan = plan_of(query)
        except LakeError:
            continue
        right, _ = rewritten(lake, Rewriter(), rules, plan)
        raw = None
        for name, mutant in alive.items():
            if name in found:
                continue
            try:
                wrong, _ = rewritten(lake, mutant, rules, plan, covered=name == COVERAGE)
            except AssertionError:
                # What the guard promises is taken for granted afterwards.
                found.add(name)
                continue
            if wrong is None or (right is not None and right.canonical == wrong.canonical and name != COVERAGE):
                continue
            raw = answer(lake, plan) if raw is None else raw
            if difference(raw, answer(lake, wrong)):
                found.add(name)
    return found
