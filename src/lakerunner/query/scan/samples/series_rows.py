"""The matching series of one segment with their metadata, for queries about labels and names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.hidden import HiddenRows
from lakerunner.model.labels import LabelSet
from lakerunner.query.scan.samples.hidden import visible_choice
from lakerunner.query.scan.samples.opened import OpenedFile, Opener, SampleTally
from lakerunner.query.scan.samples.row_groups import Wanted, choose
from lakerunner.query.scan.samples.segment import Spend
from lakerunner.query.scan.samples.series_table import Chosen, SeriesTable
from lakerunner.query.series.classic_names import BUCKET, LE
from lakerunner.query.series.go_format import plain
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Ints
from lakerunner.query.series.interned import INTERNED
from lakerunner.query.series.matchers import Matcher, accepting

LABELS = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("tid", pa.int64()),
        pa.field("labels", LABELS),
        pa.field("base_name", pa.string()),
        pa.field("type", pa.string()),
        pa.field("unit", pa.string()),
        pa.field("description", pa.string()),
    ]
)
_ALL_TIME = (-(1 << 62), 1 << 62)


def scan_series(
    opener: Opener,
    keys: Sequence[str],
    matchers: Sequence[Matcher],
    spend: Spend,
    tally: SampleTally,
    hidden: Sequence[HiddenRows] = (),
) -> pa.Table:
    """One row per series, classic series of histograms included."""
    samples_key, series_key = keys
    table = opener.series(series_key, tally)
    chosen = table.choose(tuple(matchers), partial(spend, 0))
    if hidden:
        chosen = visible_choice(opener, samples_key, table, chosen, hidden, tally)
    classic = classic_rows(opener, samples_key, table, chosen, spend, tally)
    parts = [_rows(table, chosen.stored, table.tids[chosen.stored].tolist(), table.label_sets(chosen.stored))]
    for suffix, rows in classic.items():
        labels, tids = table.label_sets(rows), table.tids[rows].tolist()
        if suffix != BUCKET:
            derived = [INTERNED.derived(tid, parent, suffix) for tid, parent in zip(tids, labels, strict=True)]
            parts.append(_rows(table, rows, [tid for tid, _ in derived], [each for _, each in derived]))
            continue
        accepts = accepting([matcher for matcher in matchers if matcher.name == LE], partial(spend, 0))

        def read(rows: np.ndarray = rows) -> dict[int, list[float]]:
            with opener.samples(samples_key, tally) as opened:
                return _bounds(opened, table, rows, spend)

        bounds = opener.again_if_bad(samples_key, read)
        of_row, tids_of, labels_of = [], [], []
        for row, tid, parent in zip(rows.tolist(), tids, labels, strict=True):
            for le in (*map(plain, bounds.get(tid, ())), "+Inf"):
                if accepts(le):
                    derived_tid, derived_labels = INTERNED.derived(tid, parent, BUCKET, le)
                    of_row.append(row)
                    tids_of.append(derived_tid)
                    labels_of.append(derived_labels)
        parts.append(_rows(table, np.array(of_row, np.int64), tids_of, labels_of))
    return pa.concat_tables(parts)


def classic_rows(
    opener: Opener, samples_key: str, table: SeriesTable, chosen: Chosen, spend: Spend, tally: SampleTally
) -> dict[str, Ints]:
    """The rows of histograms that have classic series, by suffix. Exponential histograms have none.

    The series table does not tell the two apart, but the footer of the samples usually does. Only where a row group has
    both kinds are its schemas read, once per segment.
    """
    if not chosen.classic:
        return {}
    if table.bounded_tids is None:

        def read() -> Ints:
            with opener.samples(samples_key, tally) as opened:
                return _bounded(opened, table, spend)

        table.bounded_tids = opener.again_if_bad(samples_key, read)
    return table.with_bounds(chosen, table.bounded_tids)


def _bounded(opened: OpenedFile, table: SeriesTable, spend: Spend) -> Ints:
    """The ids of histograms with bounds."""
    groups = [group for group in opened.groups if "h_schema" not in group.null_columns]
    if all(group.schemas == (CUSTOM_SCHEMA, CUSTOM_SCHEMA) for group in groups):
        return table.tids
    found = [np.zeros(0, np.int64)]
    for group in groups:
        if group.schemas is None or group.schemas[0] == CUSTOM_SCHEMA:
            spend(0)
            read = opened.file.read_row_group(group.number, columns=["tid", "h_schema"], use_threads=False)
            custom = pc.fill_null(pc.equal(read.column("h_schema"), CUSTOM_SCHEMA), False)
            found.append(np.unique(read.column("tid").filter(custom).to_numpy()))
    return np.concatenate(found)


def _rows(table: SeriesTable, rows: np.ndarray, tids: list[int], labels: list[LabelSet]) -> pa.Table:
    taken = table.table.select(["metric_name", "type", "unit", "description"]).take(pa.array(rows))
    return pa.Table.from_arrays(
        [
            pa.array(tids, pa.int64()),
            pa.array([each.pairs for each in labels], LABELS),
            *(taken.column(name).cast(pa.string()) for name in taken.column_names),
        ],
        schema=SCHEMA,
    )


def _bounds(opened: OpenedFile, table: SeriesTable, rows: np.ndarray, spend: Spend) -> dict[int, list[float]]:
    """All bucket bounds that each histogram has in the segment."""
    wanted = Wanted.of(table.names.codes[rows], table.names.values, table.tids[rows])
    found: dict[int, list[float]] = {}
    for group in choose(opened.groups, wanted, *_ALL_TIME):
        spend(0)
        if "h_schema" in group.null_columns:
            continue
        read = opened.file.read_row_group(group.number, columns=["tid", "h_custom_values"], use_threads=False)
        read = read.filter(pc.is_in(read.column("tid"), value_set=pa.array(wanted.tids)))
        lists = read.column("h_custom_values").combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(lists), 0)
        pairs = pa.table(
            {
                "tid": pa.array(np.repeat(read.column("tid").to_numpy(), lengths.to_numpy(zero_copy_only=False))),
                "bound": pc.list_flatten(lists),
            }
        ).group_by(["tid", "bound"]).aggregate([])  # fmt: skip
        for tid, bound in zip(pairs.column("tid").to_pylist(), pairs.column("bound").to_pylist(), strict=True):
            found.setdefault(tid, []).append(bound)
    return {tid: sorted(set(bounds)) for tid, bounds in found.items()}
