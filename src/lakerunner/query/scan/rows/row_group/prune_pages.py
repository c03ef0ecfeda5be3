"""Excludes rows of a row group by the bounds of its pages."""

from __future__ import annotations

import numpy as np

from lakerunner.query.scan.rows.conditions.compare import Mask
from lakerunner.query.scan.rows.conditions.evaluate import Ints
from lakerunner.query.scan.rows.conditions.predicate import And, Compare, Exists, In, Leaf, Not, Or, Predicate
from lakerunner.query.scan.rows.conditions.prune import Bounds, Verdict, verdict_of
from lakerunner.query.scan.rows.parquet.page_index import Pages
from lakerunner.query.scan.rows.row_group.group import GroupReader
from lakerunner.query.scan.rows.row_group.pieces import every_row


def rows_of_pages(predicate: Predicate, group: GroupReader) -> Ints:
    """The rows that page bounds do not exclude."""
    single = predicate.parts[0] if isinstance(predicate, And) and len(predicate.parts) == 1 else predicate
    if isinstance(single, Compare | In | Exists):
        return _of_one_leaf(single, group)
    may, _ = _by_pages(predicate, group)
    return every_row(group.rows) if may is None else np.flatnonzero(may)


def _of_one_leaf(leaf: Leaf, group: GroupReader) -> Ints:
    """The same for one condition. In a sorted column, neighbouring pages are left: then no row is looked at."""
    found = _verdicts(leaf, group)
    if found is None:
        return every_row(group.rows)
    layout, verdicts = found
    left = [number for number, verdict in enumerate(verdicts) if verdict.may]
    if not left or left[-1] - left[0] + 1 > len(left):
        may = _spread(layout, [verdict.may for verdict in verdicts])
        return every_row(group.rows) if may is None else np.flatnonzero(may)
    return every_row(group.rows)[int(layout.first_rows[left[0]]) : int(layout.first_rows[left[-1] + 1])]


def _by_pages(predicate: Predicate, group: GroupReader) -> tuple[Mask | None, Mask | None]:
    """For each row: whether it may satisfy the predicate, and whether it may fail. None means that all rows may."""
    match predicate:
        case And(parts):
            pairs = [_by_pages(part, group) for part in parts]
            return _all_of([may for may, _ in pairs]), _any_of([fail for _, fail in pairs])
        case Or(parts):
            pairs = [_by_pages(part, group) for part in parts]
            return _any_of([may for may, _ in pairs]), _all_of([fail for _, fail in pairs])
        case Not(part):
            may, fail = _by_pages(part, group)
            return fail, may
        case _:
            return _leaf_by_pages(predicate, group)


def _verdicts(leaf: Leaf, group: GroupReader) -> tuple[Pages, list[Verdict]] | None:
    """What the bounds of each page say; None if they cannot decide."""
    holders = group.bounds_of(leaf.ref)
    names = [name for name in leaf.ref.names() if name in group.opened.footer.fields]
    # Only conditions that bounds can decide, on a value that only one column can hold.
    if len(holders) != 1 or len(names) != 1 or not isinstance(leaf, Compare | In | Exists):
        return None
    found = group.page_bounds(names[0])
    if found is None:
        return None
    layout, bounds = found
    return layout, [_verdict(leaf, of_page) for of_page in bounds]


def _leaf_by_pages(leaf: Leaf, group: GroupReader) -> tuple[Mask | None, Mask | None]:
    found = _verdicts(leaf, group)
    if found is None:
        return None, None
    layout, verdicts = found
    return (
        _spread(layout, [verdict.may for verdict in verdicts]),
        _spread(layout, [verdict.fail for verdict in verdicts]),
    )


def _verdict(leaf: Leaf, bounds: Bounds) -> Verdict:
    return verdict_of(leaf, lambda _: [bounds])


def _spread(layout: Pages, flags: list[bool]) -> Mask | None:
    if all(flags):
        return None
    spread: Mask = np.repeat(np.array(flags, np.bool_), np.diff(layout.first_rows))
    return spread


def _all_of(masks: list[Mask | None]) -> Mask | None:
    known = [mask for mask in masks if mask is not None]
    if not known:
        return None
    combined: Mask = np.logical_and.reduce(known)
    return combined


def _any_of(masks: list[Mask | None]) -> Mask | None:
    if not masks or any(mask is None for mask in masks):
        return None
    combined: Mask = np.logical_or.reduce([mask for mask in masks if mask is not None])
    return combined
