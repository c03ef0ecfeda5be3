"""From the tables of many objects to the parts that become segments: one per hour of event time, each in order.

Rows far from the present get coarser parts, so that scattered times make few segments: see
docs/decisions/0013-late-rows.md.
"""

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
from lakerunner.store.statistics import event_times_ns

#: Hours before and after the present whose rows always get a part per hour. This is where queries look most.
NEAR_PAST_HOURS, NEAR_FUTURE_HOURS = 36, 12
#: Parts for all other rows together (a replay, a backfill, a broken clock). Thousands of tiny segments serve nobody.
MAX_FAR_PARTS = 48
#: Older than this is a backfill or a clock that was never set; both deserve to be seen.
_SKEWED_PAST_NS = 366 * NS_PER_DAY
#: A day ahead is no time zone and no drift.
_SKEWED_FUTURE_NS = NS_PER_DAY
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


def skewed_rows(times_ns: npt.NDArray[np.int64], now_ns: int) -> int:
    """How many rows lie over a year in the past or a day ahead."""
    return int(((times_ns <= now_ns - _SKEWED_PAST_NS) | (times_ns >= now_ns + _SKEWED_FUTURE_NS)).sum())


def parts(signal: Signal, tables: Tables, now_ns: int) -> Iterator[Tables]:
    """The rows by hour, far from now coarser; sorted as the signal wants, with what they need of the further tables."""
    rows = tables[signal.rows.suffix]
    if rows.num_rows == 0:
        return
    part_of_row = _part_of_row(event_times_ns(signal, rows), now_ns)
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


def _part_of_row(times_ns: npt.NDArray[np.int64], now_ns: int) -> npt.NDArray[np.int64]:
    hours: npt.NDArray[np.int64] = times_ns // NS_PER_HOUR
    now = now_ns // NS_PER_HOUR
    far = (hours < now - NEAR_PAST_HOURS) | (hours >= now + NEAR_FUTURE_HOURS)
    if far.any():
        # Negative, and so different from every hour.
        hours[far] = -1 - _far_parts(hours[far], now)
    return hours


def _far_parts(hours: npt.NDArray[np.int64], now: int) -> npt.NDArray[np.int64]:
    """By hour, day or month, whichever is the finest that makes few parts; else one part before now and one after."""
    days = (hours // 24).astype("datetime64[D]")
    for units in (hours, days.astype(np.int64), days.astype("datetime64[M]").astype(np.int64)):
        if int(units.max() - units.min()) < MAX_FAR_PARTS or len(np.unique(units)) <= MAX_FAR_PARTS:
            return units
    return (hours > now).astype(np.int64)


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
