"""Label names and values in one segment, from the coded columns of its series, without making label sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from lakerunner.model.hidden import HiddenRows
from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.scan.samples.hidden import visible_choice
from lakerunner.query.scan.samples.opened import Opener, SampleTally
from lakerunner.query.scan.samples.segment import Spend
from lakerunner.query.scan.samples.series_rows import classic_rows, scan_series
from lakerunner.query.scan.samples.series_table import SeriesTable
from lakerunner.query.series.classic_names import BUCKET, LE
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher

#: Label names, or the values of one label.
SCHEMA = pa.schema([pa.field("text", pa.string())])


def scan_labels(
    opener: Opener,
    keys: Sequence[str],
    matchers: Sequence[Matcher],
    label: str,
    spend: Spend,
    tally: SampleTally,
    hidden: Sequence[HiddenRows] = (),
) -> pa.Table:
    """The distinct label names of matching series; or, if `label` is set, its distinct values."""
    table = opener.series(keys[1], tally)
    chosen = table.choose(tuple(matchers), partial(spend, 0))
    if hidden:
        chosen = visible_choice(opener, keys[0], table, chosen, hidden, tally)
    classic = classic_rows(opener, keys[0], table, chosen, spend, tally)
    if classic and (label == LE or any(matcher.name == LE for matcher in matchers)):
        # The bounds are stored with the samples, so these rare queries need the whole series.
        found = _of_series(scan_series(opener, keys, matchers, spend, tally, hidden), label)
    elif label:
        found = _values(table, chosen.stored, classic, label)
    else:
        rows = np.unique(np.concatenate([chosen.stored, *classic.values()]))
        found = table.label_names(rows) | ({LE} if BUCKET in classic else set())
    return pa.table({"text": sorted(found)}, schema=SCHEMA)


def _values(table: SeriesTable, stored: Ints, classic: Mapping[str, Ints], label: str) -> set[str]:
    coded = table.label(label)

    def of(rows: np.ndarray) -> set[str]:
        return {coded.values[code] for code in np.unique(coded.codes[rows]).tolist()} - {""}

    found = of(stored)
    for suffix, rows in classic.items():
        found |= {value + suffix for value in of(rows)} if label == METRIC_NAME else of(rows)
    return found


def _of_series(series: pa.Table, label: str) -> set[str]:
    pairs = [pair for labels in series.column("labels").to_pylist() for pair in labels]
    return {value for name, value in pairs if name == label} if label else {name for name, _ in pairs}
