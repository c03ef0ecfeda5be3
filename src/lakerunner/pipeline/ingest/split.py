"""From the tables of many objects to the parts that become segments: one per hour of event time, each in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.unify_tables import unify_tables
from lakerunner.model.signal import Signal, Table
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR
from lakerunner.pipeline.ordering import sort_order, sorted_table, take, whole

#: Telemetry that is spread over more hours than this (a replay, a broken clock) is split by day: a segment must stay
#: within one day, but a thousand segments of a few rows serve nobody.
MAX_HOURS = 48
_PART = "__part"

#: Suffix -> table, as the signal names them.
Tables = Mapping[str, pa.Table]


def merged(signal: Signal, decoded: Sequence[Tables], types: AttributeTypes | None = None) -> Tables:
    """Join the tables of many objects, rows in the order of the objects; a series described twice is kept once."""
    joined_tables = {}
    for description in signal.tables:
        tables = [one[description.suffix] for one in decoded]
        joined = unify_tables(tables, description, types=types) if description.attributes else pa.concat_tables(tables)
        is_rows = description is signal.rows
        joined_tables[description.suffix] = joined if is_rows else _first_of_each(joined, description)
    return joined_tables


def _first_of_each(table: pa.Table, description: Table) -> pa.Table:
    """Keep the first of the rows that share the first column: two objects describe the same series."""
    encoded = whole(table.column(description.columns[0].name)).dictionary_encode()
    if len(encoded.dictionary) == table.num_rows:
        return table
    first = np.full(len(encoded.dictionary), table.num_rows, np.int64)
    np.minimum.at(first, encoded.indices.to_numpy(), np.arange(table.num_rows))
    return take(table, np.sort(first))


def parts(signal: Signal, tables: Tables) -> Iterator[Tables]:
    """The rows by hour (or day), sorted as the signal wants; further tables only with what the part's rows need."""
    rows = tables[signal.rows.suffix]
    if rows.num_rows == 0:
        return
    part_of_row = _part_of_row(signal, rows)
    if int(part_of_row.min()) == int(part_of_row.max()):
        ordered = sorted_table(rows, signal.rows.sort_key)
        yield {signal.rows.suffix: ordered, **_others(signal, tables, None)}
        return
    keyed = rows.append_column(_PART, pa.array(part_of_row))
    order = sort_order(keyed, (_PART, *signal.rows.sort_key))
    ordered = rows if order is None else take(rows, order)
    in_order = part_of_row if order is None else part_of_row[order]
    starts = np.flatnonzero(np.diff(in_order, prepend=in_order[0] - 1))
    for start, end in zip(starts, [*starts[1:], len(in_order)], strict=True):
        part = ordered.slice(int(start), int(end - start))
        yield {signal.rows.suffix: part, **_others(signal, tables, part)}


def _part_of_row(signal: Signal, rows: pa.Table) -> npt.NDArray[np.int64]:
    times = rows.column(signal.time_column).cast(pa.int64()).to_numpy()
    hours: npt.NDArray[np.int64] = times // (NS_PER_HOUR // signal.time_unit_ns)
    if int(hours.max() - hours.min()) < MAX_HOURS or len(np.unique(hours)) <= MAX_HOURS:
        return hours
    days: npt.NDArray[np.int64] = times // (NS_PER_DAY // signal.time_unit_ns)
    return days


def _others(signal: Signal, tables: Tables, part: pa.Table | None) -> dict[str, pa.Table]:
    """The tables that describe the rows, joined by their first column; whole when there is one part only."""
    others = {}
    for description in signal.tables[1:]:
        table = tables[description.suffix]
        if part is not None:
            key = description.columns[0].name
            table = table.filter(pc.is_in(table.column(key), value_set=pc.unique(part.column(key))))
        others[description.suffix] = sorted_table(table, description.sort_key)
    return others
