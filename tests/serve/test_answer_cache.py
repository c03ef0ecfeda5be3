"""Answers are kept while they are true, young and there is room."""

from __future__ import annotations

import uuid

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.lake_port import ScanStats
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.results import NO_TIMES, MatrixResult, QueryResult, Series, StepMatrix
from lakerunner.serve.answer_cache import AnswerCache, AnswerKey

ORG = uuid.uuid4()


def key(text: str, org_id: uuid.UUID = ORG) -> AnswerKey:
    return AnswerKey(org_id, text, 0, 1, 1, 300_000)


def result(samples: int) -> QueryResult:
    times = np.arange(samples)
    return QueryResult(MatrixResult([Series(LabelSet(()), times, np.zeros(samples), NO_TIMES, [])]), [], [], samples)


def test_by_org_fingerprint_and_age() -> None:
    now = [0.0]
    cache = AnswerCache(1_000_000, ttl_s=10.0, clock=lambda: now[0])
    cache.put(key("a"), "one", result(1), ScanStats())
    assert cache.get(key("a"), "one") is not None
    assert cache.get(key("a", uuid.uuid4()), "one") is None
    assert cache.get(key("b"), "one") is None
    assert cache.get(key("a"), "two") is None
    assert len(cache) == 0, "what is not true any more goes at once"
    cache.put(key("a"), "two", result(1), ScanStats())
    now[0] = 11.0
    assert cache.get(key("a"), "two") is None


def test_room_goes_to_what_was_used_last() -> None:
    cache = AnswerCache(100_000, ttl_s=10.0)
    for text in "abcdefgh":
        cache.put(key(text), "", result(600), ScanStats())
        assert cache.get(key("a"), "") is not None
    cache.put(key("i"), "", result(600), ScanStats())
    cache.put(key("j"), "", result(600), ScanStats())
    kept = [text for text in "abcdefghij" if cache.get(key(text), "")]
    assert kept[0] == "a"
    assert kept[-1] == "j"
    assert "b" not in kept
    cache.put(key("huge"), "", result(10_000), ScanStats())
    assert cache.get(key("huge"), "") is None, "one answer must not drive out all others"
    assert [text for text in "abcdefghij" if cache.get(key(text), "")] == kept


def test_what_is_kept_is_what_was_put() -> None:
    steps = StepMatrix([LabelSet.of({"a": "b"})], np.arange(3), np.array([[1.0, STALE, 2.0]]), np.ones((1, 3), bool))
    cache = AnswerCache(100_000, ttl_s=10.0)
    put = QueryResult(MatrixResult(steps=steps), ["careful"], ["by the way"], 3)
    cache.put(key("a"), "", put, ScanStats(rows=7, tiers_s={0}))
    kept = cache.get(key("a"), "")
    assert kept is not None and kept.stats == ScanStats(rows=7, tiers_s={0})
    assert (kept.result.warnings, kept.result.infos, kept.result.samples) == (["careful"], ["by the way"], 3)
    assert isinstance(kept.result.value, MatrixResult)
    (series,) = kept.result.value
    assert series.labels == LabelSet.of({"a": "b"})
    np.testing.assert_array_equal(series.values.view(np.uint64), steps.values[0].view(np.uint64))
