"""Search agrees with brute force over assembled traces, whichever segments the spans of a trace lie in."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import BadInput
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import compiled
from lakerunner.query.traceql.search import Search, search
from lakerunner.query.traceql.spans import Part, Spans
from lakerunner.serve.cut_traces import CutTraces
from tests.differential.traceql import naive
from tests.differential.traceql.grammar import Grammar
from tests.examples import examples
from tests.query.traceql.small_lake import NOW_NS, Rows, Segments, Span, lakes, once, plain_traces, table_of


def found(query: str, parts: Sequence[Sequence[Span]], limit: int = 1000) -> dict[str, list[set[str]]]:
    """The span ids of the sets of each trace."""
    root = compiled(query).root
    asked = Search(root, NOW_NS - 10**12, NOW_NS + 10**12, limit, 1000, 1_800 * 10**9)  # type: ignore[arg-type]
    answer: dict[str, list[set[str]]] = {}
    starts: list[int] = []
    for batch in search(asked, Segments(parts), lambda: None):  # type: ignore[arg-type]
        for text in batch.column("document").to_pylist():
            trace = json.loads(text)
            starts.append(int(trace["startTimeUnixNano"]))
            sets = [{span["spanID"] for span in one["spans"]} for one in trace["spanSets"]]
            answer[trace["traceID"]] = sorted(sets, key=sorted)
    assert starts == sorted(starts, reverse=True)
    return answer


_RELATIONS: dict[str, Callable[[Span, Span, dict[str, Span]], bool]] = {
    ">": lambda a, b, _: b["parent"] == a["id"],
    "<": lambda a, b, _: a["parent"] == b["id"],
    ">>": lambda a, b, spans: a["id"] in _ancestors(b, spans),
    "<<": lambda a, b, spans: b["id"] in _ancestors(a, spans),
    "~": lambda a, b, spans: a["id"] != b["id"] and a["parent"] == b["parent"] and _has_family(a, spans),
}


def _has_family(span: Span, spans: dict[str, Span]) -> bool:
    return span["parent"] is None or span["parent"] in spans


def _ancestors(span: Span, spans: dict[str, Span]) -> set[str]:
    seen: set[str] = set()
    at = spans.get(span["parent"])
    while at is not None and at["id"] not in seen:
        seen.add(at["id"])
        at = spans.get(at["parent"])
    return seen


def brute_force(op: str, left: str, right: str, spans: Sequence[Span]) -> dict[str, list[set[str]]]:
    answer = {}
    for trace in {span["trace"] for span in spans}:
        own = {span["id"]: span for span in spans if span["trace"] == trace}
        a = [span for span in own.values() if span["name"] == left]
        b = [span for span in own.values() if span["name"] == right]
        relation = _RELATIONS[op.lstrip("!&")]
        related = {two["id"] for two in b if any(relation(one, two, own) for one in a)}
        if op[0] == "!":
            related = {two["id"] for two in b} - related
        if op[0] == "&":
            related |= {one["id"] for one in a if any(relation(one, two, own) for two in b)}
        if related:
            answer[trace.lstrip("0")] = [related]
    return answer


@settings(max_examples=examples(60), deadline=None)
@given(lakes(), st.sampled_from(sorted(_RELATIONS)), st.sampled_from(["", "!", "&"]))
def test_relations(parts: list[list[Span]], relation: str, prefix: str) -> None:
    op = prefix + relation
    spans = once(parts)
    assert found(f'{{ name = "a" }} {op} {{ name = "b" }}', parts) == brute_force(op, "a", "b", spans)


@settings(max_examples=examples(80), deadline=None)
@given(lakes(), st.integers(0, 1 << 30))
def test_any_search(parts: list[list[Span]], number: int) -> None:
    plain = plain_traces(parts)
    text = Grammar(plain).search(random.Random(number))
    root = compiled(text).root
    assert isinstance(root, ast.Pipeline)
    try:
        wanted = naive.search(root, plain)
    except naive.WholeDivisionByZero:
        with pytest.raises(BadInput):
            found(text, parts)
        return
    answer = {trace: sorted(map(sorted, sets)) for trace, sets in found(text, parts).items()}
    assert answer == wanted, text


@pytest.mark.parametrize(
    ("query", "sets"),
    [
        ("{ } | by(kind) | { } > { }", [[2]]),
        ("{ } | by(kind) | { } !> { }", [[0, 3], [1, 4]]),
        ("{ } | by(kind) | { } &> { }", [[1, 2]]),
        ("{ } | by(kind) | { } >> { }", [[2, 4], [3]]),
        ("{ } | by(kind) | { } << { }", [[0], [1, 2]]),
        ("select(span.x)", [[0, 1, 2, 3, 4]]),
        ("select(span.x) | { kind = client }", [[1, 2, 4]]),
    ],
)
def test_only_spans_of_one_group_are_related(query: str, sets: list[list[int]]) -> None:
    kinds = ("server", "client", "client", "server", "client")
    chain = _chain(len(kinds), lambda number: number - 1 if number else None)
    spans = [{**span, "kind": kind} for span, kind in zip(chain, kinds, strict=True)]
    answer = found(query, [spans])["1"]
    assert sorted(sorted(int(span, 16) for span in one) for one in answer) == sets


@settings(max_examples=examples(40), deadline=None)
@given(lakes(), st.integers(1, 4))
def test_aggregates_and_limit(parts: list[list[Span]], limit: int) -> None:
    spans = once(parts)
    wanted = {}
    for trace in {span["trace"] for span in spans}:
        own = [span for span in spans if span["trace"] == trace and span["x"] is not None and span["x"] >= 1]
        if own and sum(span["x"] for span in own) > 2:
            start = min(span["start"] for span in spans if span["trace"] == trace)
            wanted[trace] = (start, [{span["id"] for span in own}])
    answer = found("{ span.x >= 1 } | sum(span.x) > 2", parts, limit)
    assert len(answer) == min(limit, len(wanted))
    assert all(answer[trace] == wanted[trace][1] for trace in answer)
    newest = sorted((start for start, _ in wanted.values()), reverse=True)[:limit]
    assert sorted((wanted[trace][0] for trace in answer), reverse=True) == newest


def _chain(size: int, parent: Callable[[int], int | None]) -> list[Span]:
    return [
        {
            "trace": "1",
            "id": f"{number:016x}",
            "parent": None if (up := parent(number)) is None else f"{up:016x}",
            "start": number,
            "duration": 1,
            "name": "a" if number == 0 else "b",
            "kind": "server",
            "x": None,
        }
        for number in range(size)
    ]


@pytest.mark.parametrize(
    ("spans", "matches"),
    [
        pytest.param(_chain(20_000, lambda number: number - 1 if number else None), 19_999, id="20,000 levels"),
        pytest.param(_chain(100_000, lambda number: 0 if number else None), 99_999, id="100,000 children"),
        pytest.param(_chain(1_000, lambda number: (number + 1) % 1_000), 999, id="a circle of parents"),
        pytest.param(_chain(1, lambda number: number), 0, id="its own parent"),
    ],
)
def test_odd_trees(spans: list[Span], matches: int) -> None:
    answer = Spans([Part.of(table_of(spans), (), Rows(table_of(spans), 0).ids("trace_id"))])
    names = np.array([span["name"] for span in spans])
    below = answer.trees.with_ancestor_in(names == "a")
    assert int((below & (names == "b")).sum()) == matches


def test_ids_of_other_lengths_and_negative_durations() -> None:
    spans = _chain(3, lambda number: number - 1 if number else None)
    spans[1] |= {"id": "ab", "duration": -5}
    spans[2] |= {"parent": "ab"}
    assert found("{ duration < 0ns }", [spans]) == {"1": [{"ab"}]}


@pytest.mark.parametrize(
    ("start", "duration", "parent", "is_cut"),
    [
        (0, 10, None, False),
        (0, 3_000, None, True),  # It lasts beyond the time in which spans are looked for.
        (-500, 600, None, False),
        (-500, 600, "f" * 16, True),  # It began before the range, and its root is not there.
        (10, 600, "f" * 16, False),
    ],
)
def test_a_trace_that_may_have_been_cut_is_marked(start: int, duration: int, parent: str | None, is_cut: bool) -> None:
    span: Span = {"trace": "1", "id": "a" * 16, "parent": parent, "name": "a", "kind": "server", "x": None}
    lake = Segments([[{**span, "start": start, "duration": duration}]])
    root = compiled("{ }").root
    asked = Search(root, NOW_NS, NOW_NS + 100, 10, 3, 1_000)  # type: ignore[arg-type]
    [batch] = search(asked, lake, lambda: None)  # type: ignore[arg-type]
    assert batch.column("cut").to_pylist() == [is_cut]
    cut = CutTraces(1.0)
    cut.add(batch)
    assert [text.startswith("trace 1 may have spans more than 1 s outside") for text in cut.warnings()] == [
        True
    ] * is_cut


def test_a_search_asks_between_its_steps_whether_it_is_still_wanted() -> None:
    span: Span = {"trace": "1", "id": "a" * 16, "parent": None, "name": "a", "kind": "server", "x": None}
    lake = Segments([[{**span, "start": 0, "duration": 1}]])
    asked = Search(compiled("{ }").root, NOW_NS, NOW_NS + 100, 10, 3, 1_000)  # type: ignore[arg-type]
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1

    assert list(search(asked, lake, check))  # type: ignore[arg-type]
    for last in range(checks):
        left = iter(range(last))

        def leave() -> None:
            if next(left, None) is None:  # noqa: B023
                raise TimeoutError

        with pytest.raises(TimeoutError):
            list(search(asked, lake, leave))  # type: ignore[arg-type]
    # Candidates, the piece, its row groups, its spans, the pipeline, the sets, the texts.
    assert checks >= 7


def test_spans_show_the_attributes_that_they_have() -> None:
    span: Span = {"parent": None, "name": 'a "b"', "kind": "server", "start": 0, "duration": 1}
    xs = [None, 1.0, None, 2.5]
    spans: list[Span] = [{**span, "trace": str(at + 1), "id": f"{at:016}", "x": x} for at, x in enumerate(xs)]
    shown: dict[str, object] = {"1": [], "2": [{"intValue": "1"}], "3": [], "4": [{"doubleValue": 2.5}]}
    for query in ("{ } | select(span.x, name)", "{ } | select(span.x, span.y, name)", '{ name != "" || span.x > 0 }'):
        asked = Search(compiled(query).root, NOW_NS, NOW_NS + 100, 10, 3, 1_000)  # type: ignore[arg-type]
        [batch] = search(asked, Segments([spans]), lambda: None)  # type: ignore[arg-type]
        documents = [json.loads(text) for text in batch.column("document").to_pylist()]
        assert [each["spanSet"]["matched"] for each in documents] == [1] * len(xs)
        values = {
            each["traceID"]: [pair["value"] for pair in each["spanSet"]["spans"][0].get("attributes", [])]
            for each in documents
        }
        assert values == shown, query
        assert {each["spanSet"]["spans"][0]["name"] for each in documents} == {'a "b"'}
