"""A small share of the comparison with every run of the tests; `python -m tests.differential` is the whole.

Prometheus is a peer to be compared with, not a component of the suite: where its binary is absent the test is
skipped, in CI too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.parser import parse
from tests.components.peers import peer as found_peer
from tests.differential.promql.answers import Answer, HistogramAnswer, difference
from tests.differential.promql.comparing import Both, question
from tests.differential.promql.dataset import make_dataset, memory_source
from tests.differential.promql.grammar import Grammar
from tests.differential.promql.peer import running_prometheus
from tests.differential.promql.remote_write import snappy_block
from tests.query.engine import Engine

SEED, COUNT = 20261116, 150


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    binary = found_peer("prometheus")
    series = make_dataset(SEED)
    with running_prometheus(binary) as peer:
        peer.load(series)
        yield Both(peer, Engine(memory_source(series)))


@pytest.mark.slow
def test_the_same_answers_as_prometheus(both: Both) -> None:
    verdicts = [both.ask(question(SEED, number)) for number in range(COUNT)]
    found = [str(verdict.disagreement) for verdict in verdicts if verdict.disagreement is not None]
    assert not found, "\n".join(found)
    # Two engines that both refuse everything would agree as well.
    assert sum(verdict.kind == "answered" for verdict in verdicts) > COUNT / 3


def test_a_question_is_the_same_again() -> None:
    assert question(7, 3) == question(7, 3) != question(7, 4)


@pytest.mark.parametrize("number", range(200))
def test_every_expression_parses(number: int) -> None:
    parse(Grammar(random.Random(number)).expression())


def _answer(value: float | HistogramAnswer, **labels: str) -> Answer:
    return Answer(kind="vector", cells={(LabelSet.of(labels), 0): value})


def test_differences_are_found() -> None:
    one = _answer(1.0, a="b")
    assert difference(one, _answer(1.0 + 1e-12, a="b")) is None
    assert difference(one, _answer(1.001, a="b"))
    assert difference(one, _answer(1.0, a="c"))
    assert difference(one, Answer(error="no"))
    assert difference(Answer(error="too many"), Answer(error="cannot do it: too many")) is None
    assert difference(Answer(error="too many"), Answer(error="too few"))
    assert difference(one, replace(one, notes=frozenset(["PromQL warning: odd (1:1)"])))
    assert difference(_answer(math.nan), _answer(math.nan)) is None
    assert difference(_answer(math.nan), _answer(0.0))
    histogram = HistogramAnswer(3, 4, ((0.0, 1.0, 3.0),))
    assert difference(_answer(histogram), _answer(histogram)) is None
    assert difference(_answer(histogram), _answer(HistogramAnswer(3, 4, ((0.0, 2.0, 3.0),))))
    assert difference(_answer(histogram), _answer(3.0))


def test_a_snappy_block_holds_its_input() -> None:
    block = snappy_block(b"x" * 70_000)
    # Length as a varint, then literals: a tag, two bytes of length less one, the bytes.
    assert block[:3] == bytes([0xF0, 0xA2, 0x04])
    assert block[3:6] == bytes([0xF4, 0xFF, 0xFF])
    assert len(block) == 3 + 3 + 65_536 + 3 + (70_000 - 65_536)
