"""The engine: typed results, limits, cancellation, messages."""

from __future__ import annotations

import numpy as np
import pytest

from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.block import EvaluationError
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult, ScalarResult, StringResult, VectorResult
from lakerunner.query.vectors.context import EngineOptions
from tests.query.engine import Engine

MINUTE_MS = 60_000


@pytest.fixture
def source() -> MemorySource:
    made = MemorySource()
    for i in range(4):
        labels = LabelSet.of({"__name__": "m", "i": str(i), "half": str(i % 2)})
        made.add(labels, np.arange(10) * MINUTE_MS, np.arange(10.0) + i)
    return made


def test_results_have_types(source: MemorySource) -> None:
    engine = Engine(source)
    assert engine.instant("1 + 1", 0).value == ScalarResult(0, 2.0)
    assert engine.instant('"text"', 5).value == StringResult(5, "text")
    vector = engine.instant("sum by (half) (m)", 9 * MINUTE_MS).value
    assert isinstance(vector, VectorResult)
    assert dict(zip(map(str, vector.labels), vector.values.tolist(), strict=True)) == {
        '{half="0"}': 20.0,
        '{half="1"}': 22.0,
    }
    matrix = engine.instant('m{i="0"}[2m]', 9 * MINUTE_MS).value
    assert isinstance(matrix, MatrixResult)
    assert [one.values.tolist() for one in matrix] == [[8.0, 9.0]]
    ranged = engine.range("1", 0, 2 * MINUTE_MS, MINUTE_MS).value
    assert isinstance(ranged, MatrixResult) and ranged.samples == 3


def test_a_range_query_gives_scalars_and_vectors_only(source: MemorySource) -> None:
    for text in ("m[5m]", '"text"'):
        with pytest.raises(BadInput, match="invalid expression type"):
            Engine(source).range(text, 0, 1, 1)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (EngineOptions(max_samples=10), "more than 10 samples"),
        (EngineOptions(max_series=3), "more than 3"),
        (EngineOptions(max_steps=5), "more than 5"),
        (EngineOptions(timeout_s=-1.0), "took longer"),
    ],
)
def test_limits_name_themselves(source: MemorySource, options: EngineOptions, part: str) -> None:
    with pytest.raises(LimitHit, match=part):
        Engine(source, options).range("sum(rate(m[5m])) + sum(m)", 0, 9 * MINUTE_MS, MINUTE_MS)


def test_a_subquery_cannot_escape_the_limit(source: MemorySource) -> None:
    with pytest.raises(LimitHit):
        Engine(source, EngineOptions(max_samples=100_000)).instant("max_over_time(vector(1)[100y:1ms])", 0)


@pytest.mark.parametrize("text", ["m", "rate(m[5m])", "m smoothed", "timestamp(m)", 'count_values("v", m)'])
def test_cells_are_paid_for_before_they_are_made(source: MemorySource, text: str) -> None:
    options = EngineOptions(max_samples=10_000, max_steps=1_000_000)
    with pytest.raises(LimitHit):
        Engine(source, options).range(text, 0, 500_000, 1)


def test_cancellation_is_asked_between_nodes(source: MemorySource) -> None:
    class Gone(Exception):
        pass

    calls = 0

    def cancelled() -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise Gone

    with pytest.raises(Gone):
        Engine(source).instant("m + m + m + m", 0, cancelled)


def test_messages_carry_positions(source: MemorySource) -> None:
    result = Engine(source).instant("sum(\n  rate(m[5m])\n)", 9 * MINUTE_MS)
    assert result.infos == [
        'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "m" (2:8)'
    ]


def test_type_labels_say_what_is_a_counter() -> None:
    source = MemorySource()
    for kind in ("counter", "gauge"):
        labels = LabelSet.of({"__name__": f"of_{kind}", "__type__": kind})
        source.add(labels, np.arange(10) * MINUTE_MS, np.arange(10.0))
    engine = Engine(source, EngineOptions(type_and_unit_labels=True))
    assert engine.instant("rate(of_counter[5m])", 9 * MINUTE_MS).infos == []
    (info,) = engine.instant("rate(of_gauge[5m])", 9 * MINUTE_MS).infos
    assert 'got "gauge": "of_gauge" (1:6)' in info


def test_duplicates_on_the_one_side_are_named_in_the_order_of_the_source() -> None:
    source = MemorySource()
    for name in ("zeta", "alpha"):
        source.add(LabelSet.of({"__name__": "dup", "label": name}), [0], [1.0])
    source.add(LabelSet.of({"__name__": "one"}), [0], [1.0])
    with pytest.raises(EvaluationError) as caught:
        Engine(source).instant("one + on () dup", 0)
    assert caught.value.message == (
        "found duplicate series for the match group {} on the right hand-side of the operation: "
        '[{__name__="dup", label="zeta"}, {__name__="dup", label="alpha"}];'
        "many-to-many matching not allowed: matching labels must be unique on one side"
    )


def test_series_of_a_range_are_sorted_by_labels(source: MemorySource) -> None:
    ranged = Engine(source).range("m or -m", 0, MINUTE_MS, MINUTE_MS).value
    assert isinstance(ranged, MatrixResult)
    pairs = [one.labels.pairs for one in ranged]
    assert pairs == sorted(pairs)


def test_a_step_that_is_nothing_is_refused(source: MemorySource) -> None:
    for step_ms in (0, -5):
        with pytest.raises(BadInput, match="step is not positive"):
            Engine(source).range("m", 0, 10, step_ms)
