"""Loads the kernels of the row scan before the first client would wait for them."""

from __future__ import annotations

import numpy as np

from lakerunner.query.scan.rows.conditions import automaton, id_runs, substring
from lakerunner.query.scan.rows.parquet import column_plans, page_columns, page_index, thrift
from lakerunner.query.scan.rows.row_group import coarse_times, row_counts
from lakerunner.store import needles

#: An empty struct. It is read-only, like the bytes of footers.
_EMPTY = np.frombuffer(b"\0\0", np.uint8)

KERNELS = (
    thrift.varint,
    thrift.signed,
    thrift.list_head,
    thrift.field_head,
    thrift.skip,
    page_index.index_places,
    page_index.page_locations,
    column_plans.measured,
    column_plans.read_columns,
    page_columns.text_page,
    needles.add_pieces,
    needles.choose_pieces,
    substring.choose_places,
    substring.mark,
    automaton.run,
    coarse_times._begin_of_each,
    row_counts._count,
    id_runs._read_hex,
    id_runs._ascends,
    id_runs._rows_of,
)


def _warm_footers() -> None:
    thrift.varint(_EMPTY, 0)
    thrift.signed(_EMPTY, 0)
    thrift.list_head(_EMPTY, 0)
    thrift.field_head(_EMPTY, 0, 0)
    thrift.skip(_EMPTY, 0, thrift.STRUCT)
    page_index.index_places(_EMPTY, 1, 1)
    page_index.page_locations(_EMPTY)


#: Each compiles or loads kernels for the types that scans use.
SHARES = (
    column_plans.warm,
    page_columns.warm,
    _warm_footers,
    needles.warm,
    substring.warm,
    automaton.warm,
    coarse_times.warm,
    row_counts.warm,
    id_runs.warm,
)


def warm() -> None:
    for share in SHARES:
        share()
