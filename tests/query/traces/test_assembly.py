"""Traces as they should not be: cycles, orphans, shared ids, clocks that differ, spans that end before they begin."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.traces.assembly import assemble


def spans(*rows: tuple[str | None, str | None, int, int], kinds: dict[int, str] | None = None) -> pa.Table:
    """Rows of id, parent, start and duration."""
    kinds = kinds or {}
    return pa.table(
        {
            "span_id": pa.array([row[0] for row in rows], pa.string()),
            "parent_span_id": pa.array([row[1] for row in rows], pa.string()),
            "kind": pa.array([kinds.get(number) for number in range(len(rows))], pa.string()),
            "start_timestamp": pa.array([row[2] for row in rows]).cast(pa.timestamp("ns", "UTC")),
            "duration_ns": pa.array([row[3] for row in rows], pa.int64()),
        }
    )


def test_a_tree_has_self_times_and_a_critical_path():
    made = assemble(spans(("a", None, 0, 100), ("b", "a", 10, 30), ("c", "a", 30, 60), ("d", "c", 40, 10)))
    assert made.parent.tolist() == [-1, 0, 0, 2] and made.depth.tolist() == [0, 1, 1, 2]
    assert made.self_ns.tolist() == [20, 30, 50, 10]
    assert made.is_critical.tolist() == [True, False, True, True]
    assert made.order.tolist() == [0, 1, 2, 3]


def test_orphans_cycles_and_several_roots_are_told():
    made = assemble(
        spans(
            ("a", "b", 0, 1), ("b", "a", 1, 1), ("c", "x", 2, 1), ("r", None, 3, 1), ("s", None, 4, 1), ("t", "t", 5, 1)
        )
    )
    assert made.is_cut.tolist() == [True, True, False, False, False, False]
    assert made.is_orphan.tolist() == [False, False, True, False, False, True]
    assert made.is_root.tolist() == [False, False, False, True, True, False]
    assert sorted(made.order.tolist()) == list(range(6))


def test_a_server_with_the_id_of_its_client_is_its_child():
    made = assemble(
        spans(
            ("a", None, 0, 10), ("b", "a", 1, 8), ("b", "a", 2, 6), ("c", "b", 3, 1), kinds={1: "client", 2: "server"}
        )
    )
    assert made.is_shared.tolist() == [False, True, True, False]
    assert made.parent.tolist() == [-1, 0, 1, 2]


def test_skew_is_shown_and_adjusted_only_if_asked():
    table = spans(("a", None, 1_000, 100), ("b", "a", 400, 50), ("c", "b", 410, 10))
    shown, moved = assemble(table), assemble(table, adjust=True)
    assert shown.start_ns.tolist() == [1_000, 400, 410] and shown.skew_ns.tolist() == [0, 625, 625]
    assert moved.start_ns.tolist() == [1_000, 1_025, 1_035]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "d", None]),
            st.sampled_from(["a", "b", "c", "x", None]),
            st.integers(0, 50),
            st.integers(-5, 50),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_any_spans_are_assembled(rows):
    made = assemble(spans(*rows, kinds=dict.fromkeys(range(0, 9, 2), "server")))
    assert sorted(made.order.tolist()) == list(range(len(rows)))
    at = {row: place for place, row in enumerate(made.order.tolist())}
    for row, up in enumerate(made.parent.tolist()):
        assert up < 0 or (at[up] < at[row] and made.depth[row] == made.depth[up] + 1)
    assert (made.self_ns >= 0).all() and (made.self_ns <= np.maximum(made.duration_ns, 0)).all()


def test_a_hundred_thousand_children_take_no_recursion():
    rows = [("r", None, 0, 10**9), *((f"c{n}", "r", n, 5) for n in range(100_000))]
    assert len(assemble(spans(*rows)).order) == 100_001
