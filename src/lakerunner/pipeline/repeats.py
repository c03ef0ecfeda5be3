"""Find rows that are equal, and mark log records that repeat an earlier one of their segment in every column.

The lake keeps repeated records, because two identical lines may both have happened. Loki keeps one, so a LogQL query
leaves out the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.signals.logs import REPEAT
from lakerunner.pipeline.ordering import whole
from lakerunner.query.traceql.repeats import keys_of

Ints = npt.NDArray[np.int64]


def with_repeats(rows: pa.Table) -> pa.Table:
    """Return the rows, which are sorted by service and time, with the column `repeat` set where one repeats another."""
    found = _repeats(rows)
    if not len(found):
        return rows
    marks = np.zeros(rows.num_rows, np.bool_)
    marks[found] = True
    at = rows.column_names.index(REPEAT)
    return rows.set_column(at, rows.schema.field(at), pa.array(marks, mask=~marks))


def _repeats(rows: pa.Table) -> Ints:
    """Return the rows that are equal to an earlier one. Few rows are left after the first columns."""
    names = ("timestamp", "message", *(name for name in rows.column_names if name not in ("timestamp", "message")))
    candidates, group = equal_rows(rows, names)
    order = np.argsort(group, kind="stable")
    repeated = np.zeros(len(order), np.bool_)
    repeated[1:] = group[order][1:] == group[order][:-1]
    return candidates[order[repeated]]


def equal_rows(rows: pa.Table, names: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the rows that another one equals in these columns, and a number for each that equal rows share.

    Where the first column is a time, equal rows must be neighbours or have only rows of that time between them.
    """
    first = whole(rows.column(names[0]))
    if pa.types.is_timestamp(first.type):
        times = first.cast(pa.int64()).to_numpy(zero_copy_only=False)
        is_later = times[1:] != times[:-1]
        candidates = np.flatnonzero(~(np.append(is_later, True) & np.insert(is_later, 0, True)))
        # Rows of one service and time are neighbours; another service may begin within a run, which the columns tell.
        group = np.cumsum(np.insert(is_later, 0, True))[candidates]
        names = names[1:]
    else:
        candidates, group = np.arange(rows.num_rows), np.zeros(rows.num_rows, np.int64)
    for name in names:
        if not len(candidates):
            break
        codes = _codes(rows.column(name), candidates)
        group = _numbered(group * (int(codes.max()) + 1) + codes)
        shared = np.bincount(group)[group] > 1
        candidates, group = candidates[shared], group[shared]
    return candidates, group


def _numbered(keys: Ints) -> Ints:
    """Number the distinct keys from 0."""
    numbers: Ints = pa.array(keys).dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def _codes(column: pa.ChunkedArray, rows: Ints) -> Ints:
    """Number the distinct values of these rows from 0; null is a value."""
    values = whole(column).take(pa.array(rows))
    if pa.types.is_nested(values.type):
        # A row without overflow has null in one table and an empty map in the next.
        values = pa.array([str(each) if each else "" for each in values.to_pylist()])
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    codes: Ints = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def times_of_repeated_spans(spans: pa.Table, start_ns: Ints) -> Ints:
    """The starts of spans that lie in the table twice, by their ids.

    A span that was sent twice has one start and duration. Only of spans that share these, the ids are compared.
    """
    durations = spans.column("duration_ns").to_numpy()
    keys = keys_of(np.ascontiguousarray(start_ns), np.ascontiguousarray(durations))
    order = np.argsort(keys, kind="stable")
    equal = keys[order][1:] == keys[order][:-1]
    if not equal.any():
        return np.zeros(0, np.int64)
    suspects = np.unique(np.concatenate([order[1:][equal], order[:-1][equal]]))
    some = spans.select(["trace_id", "span_id"]).take(pa.array(suspects))
    ids = pc.binary_join_element_wise(
        *(column.cast(pa.string()) for column in some.columns), "", null_handling="replace", null_replacement=""
    )
    codes = whole(ids).dictionary_encode().indices.to_numpy()
    repeated = np.bincount(codes)[codes] > 1
    found: Ints = start_ns[suspects[repeated]]
    return found
