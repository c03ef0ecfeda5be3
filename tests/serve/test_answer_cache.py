"""Answers are kept while they are true, young and there is room."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.results import NO_TIMES, MatrixResult, QueryResult, Series, StepMatrix
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.stats import QueryStats
from lakerunner.serve.answer_cache import AnswerCache, AnswerKey

KEY = AnswerKey(uuid.uuid4(), "promql", "a", QueryTimes(0, 1, 1), 300_000, "one")


def key(text: str) -> AnswerKey:
    return replace(KEY, text=text)


def result(samples: int) -> QueryResult:
    times = np.arange(samples)
    return QueryResult(MatrixResult([Series(LabelSet(()), times, np.zeros(samples), NO_TIMES, [])]), [], [], samples)


@pytest.mark.parametrize(
    "other",
    [
        {"org_id": uuid.uuid4()},
        {"language": "logql"},
        {"text": "b"},
        {"times": QueryTimes(0, 2, 1)},
        {"lookback_ms": 1},
        {"fingerprint": "two"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_key_is_all_that_the_answer_depends_on(other: dict[str, Any]) -> None:
    cache = AnswerCache(1_000_000, ttl_s=10.0)
    cache.put(KEY, result(1), QueryStats())
    assert cache.get(replace(KEY)) is not None
    assert cache.get(replace(KEY, **other)) is None


def test_an_old_answer_goes() -> None:
    now = [0.0]
    cache = AnswerCache(1_000_000, ttl_s=10.0, clock=lambda: now[0])
    cache.put(KEY, result(1), QueryStats())
    now[0] = 9.0
    assert cache.get(KEY) is not None
    now[0] = 11.0
    assert cache.get(KEY) is None
    assert len(cache) == 0


def test_room_goes_to_what_was_used_last() -> None:
    cache = AnswerCache(100_000, ttl_s=10.0)
    for text in "abcdefgh":
        cache.put(key(text), result(600), QueryStats())
        assert cache.get(key("a")) is not None
    cache.put(key("i"), result(600), QueryStats())
    cache.put(key("j"), result(600), QueryStats())
    kept = [text for text in "abcdefghij" if cache.get(key(text))]
    assert kept[0] == "a"
    assert kept[-1] == "j"
    assert "b" not in kept
    cache.put(key("huge"), result(10_000), QueryStats())
    assert cache.get(key("huge")) is None, "one answer must not drive out all others"
    assert [text for text in "abcdefghij" if cache.get(key(text))] == kept


def test_what_is_kept_is_what_was_put() -> None:
    steps = StepMatrix([LabelSet.of({"a": "b"})], np.arange(3), np.array([[1.0, STALE, 2.0]]), np.ones((1, 3), bool))
    cache = AnswerCache(100_000, ttl_s=10.0)
    put = QueryResult(MatrixResult(steps=steps), ["careful"], ["by the way"], 3)
    cache.put(KEY, put, QueryStats(rows=7, pushed={"worker": 3}))
    kept = cache.get(KEY)
    assert kept is not None
    found, stats = kept
    assert stats == QueryStats(rows=7, pushed={"worker": 3})
    assert (found.warnings, found.infos, found.samples) == (["careful"], ["by the way"], 3)
    assert isinstance(found.value, MatrixResult)
    (series,) = found.value
    assert series.labels == LabelSet.of({"a": "b"})
    np.testing.assert_array_equal(series.values.view(np.uint64), steps.values[0].view(np.uint64))
