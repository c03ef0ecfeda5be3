"""Exemplars of matching series in one segment, each with its series and its trace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.hidden import HiddenRows
from lakerunner.model.labels import LabelSet
from lakerunner.query.scan.samples.hidden import HiddenSeries, hidden_series, visible_rows
from lakerunner.query.scan.samples.opened import OpenedFile, Opener, SampleTally
from lakerunner.query.scan.samples.row_groups import Wanted, choose
from lakerunner.query.scan.samples.segment import Spend
from lakerunner.query.scan.samples.series_rows import LABELS
from lakerunner.query.series.classic_names import BUCKET, COUNT
from lakerunner.query.series.go_format import plain
from lakerunner.query.series.interned import INTERNED
from lakerunner.query.series.matchers import Matcher, accepting

SCHEMA = pa.schema(
    [
        pa.field("labels", LABELS),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("value", pa.float64()),
        pa.field("trace_id", pa.string()),
        pa.field("span_id", pa.string()),
        pa.field("attributes", pa.string()),
    ]
)


def scan_exemplars(
    opener: Opener,
    keys: Sequence[str],
    matchers: Sequence[Matcher],
    start_ms: int,
    end_ms: int,
    spend: Spend,
    tally: SampleTally,
    hidden: Sequence[HiddenRows] = (),
) -> pa.Table:
    """One row per exemplar whose own time is in the range, both ends included.

    An exemplar of a histogram is found under the histogram's own name, under `_count`, and under `_bucket` with the
    `le` of its value's bucket, which is where Prometheus keeps it.
    """
    samples_key, series_key = keys
    table = opener.series(series_key, tally)
    chosen = table.choose(tuple(matchers), partial(spend, 0))
    rows = chosen.rows()
    if not len(rows):
        return SCHEMA.empty_table()
    wanted = Wanted.of(table.names.codes[rows], table.names.values, table.tids[rows])
    gone = hidden_series(hidden, table)

    def read() -> pa.Table:
        with opener.samples(samples_key, tally) as opened:
            return _read(opened, wanted, start_ms, end_ms, spend, gone)

    found = opener.again_if_bad(samples_key, read)
    labels = dict(zip(table.tids[rows].tolist(), table.label_sets(rows), strict=True))
    parts = [_stored(found, set(table.tids[chosen.stored].tolist()), labels)]
    for suffix, of_suffix in chosen.classic.items():
        if suffix in (BUCKET, COUNT):
            parts.append(_classic(found, suffix, set(table.tids[of_suffix].tolist()), labels, matchers, spend))
    return pa.concat_tables(parts)


def _read(
    opened: OpenedFile, wanted: Wanted, start_ms: int, end_ms: int, spend: Spend, gone: Sequence[HiddenSeries]
) -> pa.Table:
    """One row per exemplar: tid, the bounds of the histogram, and the exemplar's own fields."""
    parts = []
    # An exemplar is older than its sample, so later row groups may hold exemplars of the range too.
    for group in choose(opened.groups, wanted, start_ms, 1 << 62):
        spend(0)
        read = opened.file.read_row_group(
            group.number, columns=["tid", "timestamp", "h_custom_values", "exemplars"], use_threads=False
        )
        read = visible_rows(read, gone)
        read = read.filter(
            pc.and_(pc.is_in(read.column("tid"), value_set=pa.array(wanted.tids)), read.column("exemplars").is_valid())
        ).combine_chunks()
        if read.num_rows:
            parts.append(_flat(read))
    if not parts:
        return pa.table({"tid": pa.array([], pa.int64())})
    flat = pa.concat_tables(parts)
    at = flat.column("timestamp_ms")
    return flat.filter(pc.and_(pc.greater_equal(at, start_ms), pc.less_equal(at, end_ms)))


def _flat(read: pa.Table) -> pa.Table:
    lists = read.column("exemplars").chunk(0)
    owner = pc.list_parent_indices(lists)
    items = lists.flatten()
    return pa.table(
        {
            "tid": read.column("tid").take(owner),
            "bounds": read.column("h_custom_values").take(owner),
            "timestamp_ms": pc.fill_null(items.field("timestamp").cast(pa.int64()), 0),
            "value": items.field("value"),
            "trace_id": items.field("trace_id"),
            "span_id": items.field("span_id"),
            "attributes": items.field("attributes"),
        }
    )


def _stored(found: pa.Table, tids: set[int], labels: dict[int, LabelSet]) -> pa.Table:
    rows = [row for row in found.to_pylist() if row["tid"] in tids]
    return _table(rows, [labels[row["tid"]] for row in rows])


def _classic(
    found: pa.Table, suffix: str, tids: set[int], labels: dict[int, LabelSet], matchers: Sequence[Matcher], spend: Spend
) -> pa.Table:
    rows, sets = [], []
    tests = [(matcher.name, accepting([matcher], partial(spend, 0))) for matcher in matchers]
    for row in found.to_pylist():
        if row["tid"] not in tids:
            continue
        le = ""
        if suffix == BUCKET:
            bounds = row["bounds"] or []
            at = int(np.searchsorted(bounds, row["value"])) if bounds else 0
            le = plain(bounds[at]) if at < len(bounds) else "+Inf"
        derived = INTERNED.derived(row["tid"], labels[row["tid"]], suffix, le)[1]
        if all(accepts(derived.get(name)) for name, accepts in tests):
            rows.append(row)
            sets.append(derived)
    return _table(rows, sets)


def _table(rows: list[dict[str, object]], labels: list[LabelSet]) -> pa.Table:
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names if name != "labels"}
    return pa.table({"labels": [each.pairs for each in labels], **columns}, schema=SCHEMA)
