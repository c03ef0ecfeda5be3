"""The trees of traces: parents, order and nested sets, computed for all spans at once by kernels.

A span whose parent is not there is the top of a tree of its own; so is one whose parents form a circle. Only spans
below a span without a parent id, a root, have nested-set numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql.values import Mask

NO_PARENT = -1


@dataclass(frozen=True, slots=True)
class Trees:
    """For each span, in an order in which the spans of a trace lie together."""

    #: The row of the parent; `NO_PARENT` where there is none.
    parent: Ints
    #: All rows, parents before their children.
    order: Ints
    #: Numbers of the nested sets; 0 where the span is not connected to a root.
    left: Ints
    right: Ints
    #: Equal for spans that share a parent, and for the roots of a trace; -1 for spans whose parent is not there.
    family: Ints
    children: Ints

    def with_parent_in(self, chosen: Mask) -> Mask:
        """Spans whose parent is chosen."""
        has = self.parent >= 0
        return has & chosen[np.where(has, self.parent, 0)]

    def with_child_in(self, chosen: Mask) -> Mask:
        rows = self.parent[chosen & (self.parent >= 0)]
        found: Mask = np.bincount(rows, minlength=len(chosen)) > 0
        return found

    def with_ancestor_in(self, chosen: Mask) -> Mask:
        return _below(self.order, self.parent, chosen)

    def with_descendant_in(self, chosen: Mask) -> Mask:
        return _above(self.order, self.parent, chosen)

    def with_sibling_in(self, chosen: Mask) -> Mask:
        """Spans of which another child of the same parent is chosen."""
        member = self.family >= 0
        size = int(self.family.max(initial=-1)) + 1
        counts = np.bincount(self.family[chosen & member], minlength=size)
        near = np.zeros(len(chosen), np.int64)
        near[member] = counts[self.family[member]]
        found: Mask = near - (chosen & member) > 0
        return found

    def nested_parent(self) -> Ints:
        """The left number of the parent; -1 for roots, 0 for spans that are not connected to one."""
        has = self.parent >= 0
        numbers = np.where(has, self.left[np.where(has, self.parent, 0)], -1)
        return np.where(self.left > 0, numbers, 0)


def trees_of(trace: Ints, span: Ints, parent: Ints) -> Trees:
    """The trees of spans. `span` and `parent` are numbers of ids, which are equal where the ids are; -1 is no id.

    `trace` is the number of the trace, ascending.
    """
    size = len(trace)
    width = int(max(span.max(initial=-1), parent.max(initial=-1))) + 2
    own = trace * width + span + 1
    wanted = trace * width + parent + 1
    by_id = np.argsort(own, kind="stable")
    sorted_ids = own[by_id]
    at = np.searchsorted(sorted_ids, wanted)
    at_safe = np.minimum(at, max(size - 1, 0))
    found = (parent >= 0) & (sorted_ids[at_safe] == wanted) if size else np.zeros(0, np.bool_)
    up = np.where(found, by_id[at_safe], NO_PARENT) if size else np.zeros(0, np.int64)
    up[up == np.arange(size)] = NO_PARENT
    family = np.full(size, -1, np.int64)
    has = found | (parent < 0)
    if has.any():
        _, family[has] = np.unique(wanted[has], return_inverse=True)
    order, left, right, up = _walk(up.astype(np.int64), parent < 0, trace)
    children = np.bincount(up[up >= 0], minlength=size).astype(np.int64)
    return Trees(up, order, left, right, family, children)


@njit(cache=True, nogil=True)
def _walk(parent: Ints, is_root: Mask, trace: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Visit every tree from its top, without recursion. Circles are cut at the first of their spans."""
    size = len(parent)
    first = np.full(size, -1, np.int64)
    following = np.full(size, -1, np.int64)
    for row in range(size - 1, -1, -1):
        up = parent[row]
        if up >= 0:
            following[row] = first[up]
            first[up] = row
    order = np.empty(size, np.int64)
    left = np.zeros(size, np.int64)
    right = np.zeros(size, np.int64)
    seen = np.zeros(size, np.bool_)
    stack = np.empty(size + 1, np.int64)
    cut = parent.copy()
    count = 0
    number = 1
    last_trace = -1
    for sweep in range(2):
        for top in range(size):
            # The first sweep visits trees that have a top, the second circles.
            if seen[top] or (sweep == 0 and parent[top] >= 0):
                continue
            if sweep == 0 and trace[top] != last_trace:
                last_trace = trace[top]
                number = 1
            numbered = sweep == 0 and is_root[top]
            cut[top] = -1
            depth = 0
            stack[0] = top
            entering = True
            node = top
            while depth >= 0:
                node = stack[depth]
                if entering:
                    seen[node] = True
                    order[count] = node
                    count += 1
                    if numbered:
                        left[node] = number
                        number += 1
                    child = first[node]
                else:
                    child = following[stack[depth + 1]]
                while child >= 0 and seen[child]:
                    child = following[child]
                if child >= 0:
                    depth += 1
                    stack[depth] = child
                    entering = True
                else:
                    if numbered:
                        right[node] = number
                        number += 1
                    depth -= 1
                    entering = False
    return order, left, right, cut


@njit(cache=True, nogil=True)
def _below(order: Ints, parent: Ints, chosen: Mask) -> Mask:
    found = np.zeros(len(order), np.bool_)
    for place in range(len(order)):
        row = order[place]
        up = parent[row]
        if up >= 0:
            found[row] = chosen[up] or found[up]
    return found


@njit(cache=True, nogil=True)
def _above(order: Ints, parent: Ints, chosen: Mask) -> Mask:
    found = np.zeros(len(order), np.bool_)
    for place in range(len(order) - 1, -1, -1):
        row = order[place]
        up = parent[row]
        if up >= 0 and (chosen[row] or found[row]):
            found[up] = True
    return found
