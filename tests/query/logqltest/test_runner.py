"""The comparison finds what is wrong: an answer that differs from the recorded one must fail."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.query.logqltest.__main__ import main
from tests.query.logqltest.asking import Answer
from tests.query.logqltest.compare import query_difference
from tests.query.logqltest.shapes import endpoint_difference
from tests.query.logqltest.suite import Case, cases_of, differences

STREAMS = {
    "resultType": "streams",
    "result": [
        {"stream": {"a": "1"}, "values": [["20", "x"], ["10", "p"], ["10", "q"]]},
        {"stream": {"a": "2"}, "values": [["15", "z"]]},
    ],
}
VECTOR = {
    "resultType": "vector",
    "result": [{"metric": {"a": "1"}, "value": [5, "0.1"]}, {"metric": {"a": "2"}, "value": [5, "NaN"]}],
}
MATRIX = {"resultType": "matrix", "result": [{"metric": {}, "values": [[5, "1"], [6.5, "2"]]}]}
SCALAR = {"resultType": "scalar", "result": [4196624850173, "7"]}


def case(expect: Any, **more: Any) -> Case:
    params = {"query": "q", "direction": "backward"}
    return Case("id", "GET", "/loki/api/v1/query", params, {"kind": "range", "expect": expect, **more})


def answer(data: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps({"status": "success", "data": data}))


def changed(data: Any, change: Callable[[Any], object]) -> Any:
    found = copy.deepcopy(data)
    change(found)
    return found


@pytest.mark.parametrize(
    ("expect", "change"),
    [
        (STREAMS, lambda data: data["result"].reverse()),
        (STREAMS, lambda data: data["result"][0]["values"].append(data["result"][0]["values"].pop(1))),
        (STREAMS, lambda data: data.update(stats={"summary": {}})),
        (VECTOR, lambda data: data["result"].reverse()),
        (VECTOR, lambda data: data["result"][0]["value"].__setitem__(1, "0.10000000000000001")),
        (MATRIX, lambda data: data["result"][0]["values"][0].__setitem__(0, 5.0)),
        (SCALAR, lambda data: data["result"].__setitem__(0, 12)),
    ],
)
def test_what_is_the_same_passes(expect: Any, change: Callable[[Any], object]) -> None:
    assert query_difference(case(expect), answer(changed(expect, change))) is None


@pytest.mark.parametrize(
    ("expect", "change"),
    [
        (STREAMS, lambda data: data["result"].pop()),
        (STREAMS, lambda data: data["result"].append({"stream": {"a": "3"}, "values": [["1", "y"]]})),
        (STREAMS, lambda data: data["result"][0]["values"].reverse()),
        (STREAMS, lambda data: data["result"][0]["values"].pop()),
        (STREAMS, lambda data: data["result"][0]["values"][0].__setitem__(1, "y")),
        (STREAMS, lambda data: data["result"][0]["stream"].update(b="1")),
        (STREAMS, lambda data: data.update(resultType="matrix")),
        (VECTOR, lambda data: data["result"][0]["value"].__setitem__(1, "0.1000001")),
        (VECTOR, lambda data: data["result"][1]["value"].__setitem__(1, "0")),
        (VECTOR, lambda data: data["result"][0]["value"].__setitem__(0, 6)),
        (VECTOR, lambda data: data["result"].append(data["result"][0])),
        (MATRIX, lambda data: data["result"][0]["values"].pop()),
        (SCALAR, lambda data: data["result"].__setitem__(1, "8")),
    ],
)
def test_what_differs_fails(expect: Any, change: Callable[[Any], object]) -> None:
    assert query_difference(case(expect), answer(changed(expect, change))) is not None


def test_the_order_of_sorted_answers_counts() -> None:
    ordered = case({**VECTOR, "result": [{"metric": {}, "value": [5, "1"]}, {"metric": {"a": "1"}, "value": [5, "2"]}]})
    wrong = answer({**VECTOR, "result": ordered.recorded["expect"]["result"][::-1]})
    assert query_difference(ordered, wrong) is None
    assert query_difference(case(ordered.recorded["expect"], ordered=True), wrong) is not None


def test_any_entry_of_the_instant_of_the_limit_may_be_kept() -> None:
    other = changed(STREAMS, lambda data: data["result"][0]["values"][1].__setitem__(1, "another"))
    assert query_difference(case(STREAMS), answer(other)) is not None
    assert query_difference(case(STREAMS, tie_at_limit=True), answer(other)) is None
    fewer = changed(STREAMS, lambda data: data["result"][0]["values"].pop())
    assert query_difference(case(STREAMS, tie_at_limit=True), answer(fewer)) is not None


def test_refusals() -> None:
    refused = Case("id", "GET", "/", {}, {"kind": "instant", "error": {"status": 400, "message": "no"}})
    assert query_difference(refused, Answer(422, "never")) is None
    assert query_difference(refused, Answer(500, "oops")) is not None
    assert query_difference(refused, answer(VECTOR)) is not None
    assert query_difference(case(VECTOR), Answer(400, "no")) is not None


@pytest.mark.parametrize(
    ("compare", "got", "same"),
    [
        ("exact", {"data": [{"b": "2"}, {"a": "1"}]}, True),
        ("exact", {"data": [{"a": "1"}]}, False),
        ("shape", {"data": [{"label": "b", "n": 7}, {"label": "a", "n": 8}]}, False),
    ],
)
def test_endpoints(compare: str, got: Any, same: bool) -> None:
    recorded = {"status": 200, "compare": compare, "answer": {"data": [{"a": "1"}, {"b": "2"}]}}
    difference = endpoint_difference(Case("id", "GET", "/", {}, recorded), Answer(200, json.dumps(got)))
    assert (difference is None) is same


def test_shapes_leave_out_numbers_but_no_names() -> None:
    def difference(got: Any) -> str | None:
        recorded = {"status": 200, "compare": "shape", "answer": {"fields": [{"label": "a", "n": 1, "p": ["x", "y"]}]}}
        return endpoint_difference(Case("id", "GET", "/", {}, recorded), Answer(200, json.dumps(got)))

    assert difference({"fields": [{"label": "a", "n": 99, "p": ["y", "x"]}]}) is None
    assert difference({"fields": [{"label": "b", "n": 1, "p": ["x", "y"]}]}) is not None
    assert difference({"fields": [{"label": "a", "n": "word", "p": ["x", "y"]}]}) is not None
    assert difference({"fields": [{"label": "a", "n": 1}]}) is not None


def test_differences_are_named_with_their_reasons() -> None:
    assert all(reason for reason in differences().values())


def test_a_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    (tmp_path / "x.jsonl").write_text('{"id": "x-1", "query": "{}", "kind": "range", "start": "1", "expect": {}}\n')
    (read,) = cases_of(tmp_path / "x.jsonl")
    assert read.path == "/loki/api/v1/query_range" and read.params == {"query": "{}", "start": "1"}
