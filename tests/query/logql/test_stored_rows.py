"""Few rows that are shown as they are stored: the same answer as by way of entries and stages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.logql.answer import answer_batch
from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.pipeline import Pipeline
from lakerunner.query.logql.stored_rows import equalities, stored_answer
from tests.query.logql.test_records import OWN, pair, request, stored, text

_VALUES = st.sampled_from(
    [text("a"), text(""), text('q"\\\n\x01é'), {"intValue": "5"}, {"doubleValue": 0.5}, {"doubleValue": 1e30},
     {"boolValue": True}, {}, {"arrayValue": {"values": [{"intValue": "1"}]}}]
)  # fmt: skip
_KEYS = st.sampled_from(["a", "b.c", "A", "level", "trace_id", "service.name", "env", "9x"])
_RESOURCE_KEYS = st.sampled_from(["service.name", "k8s.pod.name", "host.name", "cloud.region", "a"])
_RECORDS = st.fixed_dictionaries(
    {
        "timeUnixNano": st.integers(1, 9).map(str),
        "body": st.sampled_from([text("line"), text(""), {}]),
        "attributes": st.dictionaries(_KEYS, _VALUES, max_size=3).map(
            lambda found: [pair(key, value) for key, value in found.items()]
        ),
    },
    optional={
        "observedTimeUnixNano": st.just("12"),
        "severityText": st.sampled_from(["warn", "odd"]),
        "flags": st.sampled_from([0, 1]),
        "traceId": st.just("ab" * 16),
    },
)
_REQUESTS = st.lists(
    st.builds(
        lambda records, resource, scope: request(*records, resource=resource, scope=scope),
        st.lists(_RECORDS, min_size=1, max_size=3),
        st.dictionaries(_RESOURCE_KEYS, st.sampled_from([text("r"), {"intValue": "7"}]), max_size=3).map(
            lambda found: [pair(key, value) for key, value in found.items()]
        ),
        st.sampled_from([{}, {"name": "lib"}, {"name": "lib", "attributes": [pair("a", text("scope"))]}]),
    ),
    min_size=1,
    max_size=2,
)
_QUERIES = (
    '{service_name=~".+"}',
    '{a="a"}',
    '{service_name=~".+", k8s_pod_name=""}',
    '{service_name=~".+"} | a!="a" | b_c="5" and detected_level="warn"',
    '{service_name=~".+"} | trace_id="' + "ab" * 16 + '"',
)


def compared(requests: list[dict[str, Any]], query: str) -> bool:
    """Compare both ways. Returns whether the short way answered."""
    selector = parse(query)
    assert isinstance(selector, LogSelector)
    pipeline = Pipeline.of(selector)
    wanted = equalities(pipeline.matchers, pipeline.stages)
    assert wanted is not None
    (rows,) = stored(requests).combine_chunks().to_batches()
    short = stored_answer(rows, wanted)
    if short is not None:
        long = answer_batch(pipeline.run(pipeline.entries(rows), lambda: None))
        assert short.schema == long.schema
        assert short.to_pylist() == long.to_pylist()
    return short is not None


@given(_REQUESTS, st.sampled_from(_QUERIES))
@settings(max_examples=100, deadline=None)
def test_the_short_way_gives_the_same_answer(requests: list[dict[str, Any]], query: str) -> None:
    compared(requests, query)


def test_plain_records_take_the_short_way() -> None:
    plain = request(
        {"timeUnixNano": "7", "body": text("one"), "severityText": "warn", "severityNumber": 13, "flags": 1},
        {"timeUnixNano": "8", "body": text("two"), "severityText": "warn", "severityNumber": 13,
         "attributes": [pair("n", {"doubleValue": 0.5}), pair("a", text("x"))]},
        resource=[pair("service.name", text("a")), pair("k8s.pod.name", text("p")), pair("host.name", text("h"))],
        scope={"name": "lib"},
    )  # fmt: skip
    for query in _QUERIES:
        assert compared([plain], query)


def test_rows_that_need_rules_do_not() -> None:
    (rows,) = stored(OWN).combine_chunks().to_batches()
    assert stored_answer(rows, ()) is None


@pytest.mark.parametrize(
    "query", ['{a=~"x"} | b="c"', '{a="b"} | c > 5', '{a="b"} | json', '{a="b"} | c="d" or e="f"', '{a="b"} | drop a']
)
def test_other_queries_are_not_that_simple(query: str) -> None:
    selector = parse(query)
    assert isinstance(selector, LogSelector)
    pipeline = Pipeline.of(selector)
    assert equalities(pipeline.matchers, pipeline.stages) is None


def test_no_rows_are_an_empty_answer() -> None:
    (rows,) = stored([request({"timeUnixNano": "7", "body": text("x")})]).combine_chunks().to_batches()
    wanted = equalities(Pipeline.of(parse('{a="b"}')).matchers, ())  # type: ignore[arg-type]
    assert wanted is not None
    short = stored_answer(rows, wanted)
    assert short is None or short.num_rows == 0
    assert isinstance(rows, pa.RecordBatch)
