"""Runs of a sorted column: what is written is what is read, and what does not fit is left out."""

from __future__ import annotations

import itertools

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.store.runs import RUNS_METADATA, Runs, RunSpool, runs_of

_groups = st.lists(st.lists(st.sampled_from(["", "a", "b", 'quote"', "ü"]), min_size=1, max_size=20), max_size=4)


def _written(*groups: list[str | None], coded: bool = False) -> dict[bytes, bytes]:
    spool = RunSpool("x")
    for group in groups:
        values = pa.array(group, pa.string())
        spool.add_group(pa.table({"x": values.dictionary_encode() if coded else values}))
    return spool.metadata()


def _values(runs: Runs | None) -> list[str]:
    assert runs is not None
    lengths = [end - begin for begin, end in itertools.pairwise(runs.starts.tolist())]
    return [value for value, length in zip(runs.values, lengths, strict=True) for _ in range(length)]


@given(_groups, st.booleans())
def test_runs_give_the_values_again(groups: list[list[str]], coded: bool) -> None:
    found = runs_of(_written(*groups, coded=coded), [len(group) for group in groups])
    assert [_values(runs) for runs in found] == groups


def test_groups_with_nulls_or_too_many_values_have_none() -> None:
    many = [str(number) for number in range(300)]
    written = _written(["a", "b"], ["a", None], many, ["x" * 20_000])
    first, *others = runs_of(written, [2, 2, 300, 1])
    assert _values(first) == ["a", "b"] and others == [None, None, None]
    assert _written(["a", None], many) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"groups": []},
        {"groups": [{"values": ["a"], "ends": [2, 3]}]},
        {"groups": [{"values": ["a", "b"], "ends": [2, 4]}]},
        {"groups": [{"values": ["a", "b"], "ends": [3, 3]}]},
    ],
)
def test_what_does_not_fit_is_left_out(change: dict[str, object]) -> None:
    document = orjson.loads(_written(["a", "a", "b"])[RUNS_METADATA]) | change
    assert runs_of({RUNS_METADATA: orjson.dumps(document)}, [3]) == [None]
    assert runs_of({}, [3]) == runs_of(None, [3]) == [None]
