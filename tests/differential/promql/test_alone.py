"""What must hold without a peer, over the same random expressions: a step is an instant query, groups are the whole."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from lakerunner.model.errors import LakeError
from lakerunner.query import language
from lakerunner.query.language import StepPlan
from lakerunner.query.run import STREAMED_GROUPS, StepRun, joined
from tests.differential.promql.answers import Answer, difference, own_answer, own_refusal
from tests.differential.promql.dataset import make_dataset, memory_source
from tests.differential.promql.grammar import Grammar
from tests.differential.promql.samples import START_MS
from tests.query.engine import Engine

SEED = 77
ENGINE_SOURCE = memory_source(make_dataset(SEED))
ENGINE = Engine(ENGINE_SOURCE)
STEP_MS = 60_000
FIRST_MS = START_MS + 600_000

#: What depends by its nature on other steps or on the query's own times.
_OF_THE_RANGE = re.compile(r"\b(start|end|step|range)\(\)|@|\bor\b|sort|histogram_quantiles|limitk")


def _range(text: str, start_ms: int, end_ms: int) -> Answer:
    try:
        return own_answer(ENGINE.range(text, start_ms, end_ms, STEP_MS))
    except LakeError as reason:
        return own_refusal(reason)


def _instant(text: str, time_ms: int) -> Answer:
    try:
        return own_answer(ENGINE.instant(text, time_ms))
    except LakeError as reason:
        return own_refusal(reason)


@pytest.mark.parametrize("number", range(300))
def test_a_step_is_the_instant_query_at_its_time(number: int) -> None:
    text = Grammar(random.Random(f"alone/{number}")).expression()
    if _OF_THE_RANGE.search(text):
        return
    ranged, instant = _range(text, FIRST_MS, FIRST_MS), _instant(text, FIRST_MS)
    if instant.kind not in ("vector", "scalar"):
        return
    assert difference(Answer(cells=instant.cells), Answer(cells=ranged.cells)) is None
    longer = _range(text, FIRST_MS - STEP_MS, FIRST_MS + STEP_MS)
    if not longer.error:
        column = {key: cell for key, cell in longer.cells.items() if key[1] == FIRST_MS}
        assert difference(Answer(cells=instant.cells), Answer(cells=column)) is None


@pytest.mark.parametrize("number", range(300))
def test_groups_together_are_the_whole(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Grammar(random.Random(f"alone/{number}")).expression()
    start_ms, end_ms = FIRST_MS, FIRST_MS + 9 * STEP_MS
    # So few steps are one group, as long as the patches below do not hold.
    whole = _range(text, start_ms, end_ms)
    monkeypatch.setattr(language, "_LEAST_STEPS", 2)
    monkeypatch.setattr(language, "_REACHES", 0)
    try:
        plan = ENGINE.compile(text, start_ms, end_ms, STEP_MS)
        assert isinstance(plan, StepPlan)
        groups = StepRun(plan, ENGINE_SOURCE, lambda: None, most_groups=STREAMED_GROUPS)
        assert not plan.splittable or len(groups._groups) == 5
        parts = own_answer(joined(groups, [group.matrix for group in groups]))
    except LakeError as reason:
        parts = own_refusal(reason)
    if whole.error:
        assert parts.error
    else:
        assert difference(_placeless(whole), _placeless(parts)) is None


def _placeless(answer: Answer) -> Answer:
    """A message that two parts of a query give has the place of the last, which differs from group to group."""
    return replace(answer, notes=frozenset(re.sub(r" \(\d+:\d+\)$", "", note) for note in answer.notes))
