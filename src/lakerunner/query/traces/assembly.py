"""Assembles the spans of a trace to a tree: roots, children, orphans, cycles, skew of clocks, self time, critical path.

Depths, skew and self time are computed on columns, level by level; only the order of the waterfall and the critical
path walk the tree, once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Assembly:
    """One element per span, in the order of the table."""

    #: The row of the parent; -1 for a root, an orphan, and where a cycle of parents was cut.
    parent: Ints
    depth: Ints
    #: Spans without a parent id, those whose parent is missing, and those whose link to their parent closed a cycle.
    is_root: Mask
    is_orphan: Mask
    is_cut: Mask
    #: Spans that share their id with another one, as client and server of some senders do.
    is_shared: Mask
    start_ns: Ints
    duration_ns: Ints
    #: How much later a span would have to begin to lie within its parent; what its ancestors need is included.
    skew_ns: Ints
    #: The part of a span in which none of its children runs.
    self_ns: Ints
    #: Spans on which the end of the trace waited.
    is_critical: Mask
    #: Rows in the order of a waterfall: parents before children, siblings by start.
    order: Ints


def assemble(spans: pa.Table, *, adjust: bool = False) -> Assembly:
    """Assemble the spans of one trace. With `adjust`, spans of a skewed clock are moved into their parents."""
    size = spans.num_rows
    start = spans.column("start_timestamp").cast(pa.int64()).to_numpy().copy()
    duration = np.maximum(spans.column("duration_ns").to_numpy(), 0)
    span_ids = spans.column("span_id").combine_chunks()
    parent_ids = spans.column("parent_span_id").combine_chunks()
    server = np.array([kind in ("server", "consumer") for kind in spans.column("kind").to_pylist()], np.bool_)
    parent, is_shared = _parents(span_ids, parent_ids, server)
    has_parent = parent_ids.is_valid().to_numpy(zero_copy_only=False)
    is_orphan = has_parent & (parent < 0)
    depth, is_cut = _depths(parent)
    parent = np.where(is_cut, -1, parent)
    skew = _skew(parent, depth, start, duration)
    if adjust:
        start = start + skew
    order = _waterfall(parent, start)
    return Assembly(
        parent,
        depth,
        ~has_parent,
        is_orphan,
        is_cut,
        is_shared,
        start,
        duration,
        skew,
        _self_time(parent, start, duration),
        _critical(parent, start, duration) if size else np.zeros(0, np.bool_),
        order,
    )


def _parents(span_ids: pa.Array, parent_ids: pa.Array, server: Mask) -> tuple[Ints, Mask]:
    """The row of each span's parent. Of spans that share an id, the server is the child of the other and the parent of
    the children."""
    size = len(span_ids)
    encoded = pa.concat_arrays([span_ids, parent_ids]).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    own, wanted = codes[:size], codes[size:]
    count = len(encoded.dictionary)
    # The last one assigned wins: servers, else the first row.
    holder = np.full(count + 1, -1, np.int64)
    first = np.full(count + 1, -1, np.int64)
    rows = np.arange(size)[::-1]
    holder[own[rows]] = rows
    first[own[rows]] = rows
    servers = np.flatnonzero(server)[::-1]
    holder[own[servers]] = servers
    clients = np.flatnonzero(~server)[::-1]
    first[own[clients]] = clients
    holder[-1] = first[-1] = -1
    uses = np.bincount(own[own >= 0], minlength=count + 1)
    is_shared = (own >= 0) & (uses[own] > 1)
    parent = np.where(wanted >= 0, holder[wanted], -1)
    # A server that shares its client's id is called by that client.
    called = is_shared & server & (first[own] != np.arange(size)) & ~server[first[own]]
    parent = np.where(called, first[own], parent)
    return np.where(parent == np.arange(size), -1, parent), is_shared


def _depths(parent: Ints) -> tuple[Ints, Mask]:
    """The depth of each span. Where parents go round in a circle, the links of its spans are cut."""
    size = len(parent)
    depth = np.full(size, -1, np.int64)
    depth[parent < 0] = 0
    level = 0
    known = parent < 0
    while True:
        below = ~known & (parent >= 0) & known[np.where(parent >= 0, parent, 0)]
        if not below.any():
            break
        level += 1
        depth[below] = depth[parent[below]] + 1
        known |= below
    is_cut = ~known
    depth[is_cut] = 0
    return depth, is_cut


def _skew(parent: Ints, depth: Ints, start: Ints, duration: Ints) -> Ints:
    """How far each span lies before its parent's start, as if its clock were behind."""
    skew = np.zeros(len(parent), np.int64)
    for level in range(1, int(depth.max()) + 1 if len(depth) else 0):
        rows = np.flatnonzero((depth == level) & (parent >= 0))
        up = parent[rows]
        begins = start[up] + skew[up]
        moved = start[rows] + skew[up]
        room = duration[up] - duration[rows]
        early = np.where(moved < begins, begins - moved + np.maximum(room, 0) // 2, 0)
        skew[rows] = skew[up] + early
    return skew


def _waterfall(parent: Ints, start: Ints) -> Ints:
    """Rows with parents before their children, and siblings by start."""
    size = len(parent)
    if not size:
        return np.zeros(0, np.int64)
    by_start = np.lexsort((np.arange(size), start))
    # Children of each span, in order of start; walked with an explicit stack.
    children: dict[int, list[int]] = {}
    for row in by_start.tolist():
        children.setdefault(int(parent[row]), []).append(row)
    found: list[int] = []
    stack = children.get(-1, [])[::-1]
    while stack:
        row = stack.pop()
        found.append(row)
        stack += children.get(row, [])[::-1]
    return np.array(found, np.int64)


def _self_time(parent: Ints, start: Ints, duration: Ints) -> Ints:
    """Duration less the union of the children's times."""
    rows = np.flatnonzero(parent >= 0)
    up = parent[rows]
    begins = np.clip(start[rows], start[up], start[up] + duration[up])
    ends = np.clip(start[rows] + duration[rows], start[up], start[up] + duration[up])
    order = np.lexsort((begins, up))
    up, begins, ends = up[order], begins[order], ends[order]
    if not len(up):
        return duration.copy()
    # The furthest end so far within each parent: offsets keep parents apart.
    first = np.ones(len(up), np.bool_)
    first[1:] = up[1:] != up[:-1]
    base = (np.cumsum(first) - 1) * (int(ends.max() - begins.min()) + 1)
    low = int(begins.min())
    reach = np.maximum.accumulate(ends - low + base)
    before = np.where(first, 0, np.concatenate(([0], reach[:-1])) - base)
    covered = np.maximum(0, ends - low - np.maximum(begins - low, before))
    used = np.bincount(up, weights=covered, minlength=len(parent)).astype(np.int64)
    left: Ints = np.maximum(duration - used, 0)
    return left


def _critical(parent: Ints, start: Ints, duration: Ints) -> Mask:
    """From the root with the last end downwards: of each span on the path, the children that its end waited for.

    Children are taken backwards from the end: the last to end, then the last to end before that one began, and so on.
    """
    ends = start + duration
    tops = np.flatnonzero(parent < 0)
    found = np.zeros(len(parent), np.bool_)
    children: dict[int, list[int]] = {}
    for row in np.argsort(-ends, kind="stable").tolist():
        children.setdefault(int(parent[row]), []).append(row)
    stack = [int(tops[np.argmax(ends[tops])])] if len(tops) else []
    while stack:
        row = stack.pop()
        found[row] = True
        until = int(ends[row])
        for child in children.get(row, []):
            if int(ends[child]) <= until:
                stack.append(child)
                until = int(start[child])
    return found
