"""Rewritten answers equal raw ones, over random rules, queries and data; and a rewriter without a guard is noticed."""

from __future__ import annotations

from pathlib import Path

from lakerunner.query.rules.rewriter import Rewriter
from tests.query.rules.rewrites.mutants import survivors
from tests.query.rules.rewrites.small_lake import SmallLake
from tests.query.rules.rewrites.trial import trials

_SEEDS = (1, 2, 3, 5)


def test_rewritten_answers_equal_raw_ones(tmp_path: Path) -> None:
    rewritten = 0
    for seed in _SEEDS:
        lake = SmallLake(tmp_path / str(seed))
        try:
            for outcome in trials(seed, lake, Rewriter()):
                assert not outcome.difference, f"seed {seed}: {outcome.text}: {outcome.difference}"
                rewritten += outcome.kind in ("rewritten", "split")
        finally:
            lake.close()
    assert rewritten > 10, "a check that refuses everything checks nothing"


def test_every_guard_is_needed(tmp_path: Path) -> None:
    assert not survivors(tmp_path, range(1, 40))
