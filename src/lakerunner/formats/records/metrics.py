"""Convert flat records to samples and series: each record is a sample, its other keys are labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Entry, Ints, as_text
from lakerunner.formats.decoded import table_of
from lakerunner.formats.limits import Limits, cut_key
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.factorize import factorize_rows
from lakerunner.formats.otlp.labels import LabelSets, Rank, Source, label_sets
from lakerunner.formats.otlp.nesting import timestamps
from lakerunner.formats.otlp.series import first_of_each
from lakerunner.formats.records.fields import LABEL_PREFIXES
from lakerunner.formats.records.records import Mask, Records
from lakerunner.model.labels import METRIC_NAME, prometheus_label
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from lakerunner.model.time import NS_PER_MS

_NOT_METRIC = re.compile(r"[^a-zA-Z0-9_:]")
_TYPES = {"gauge", "counter", "histogram", "summary", "info", "unknown"}
#: Words that may be a label as well as metadata, and the values that are clearly metadata. Everything else under these
#: keys is a label: a label that is taken for metadata would merge series.
_DOUBTFUL = {
    "type": r"^(?i:gauge|counter|histogram|exponential_?histogram|summary|sum|info|unknown|untyped|stateset)$",
    "kind": r"^(?i:gauge|counter|histogram|exponential_?histogram|summary|sum|info|unknown|untyped|stateset)$",
    "unit": r"^(?i:1|%|\{[^}]*\}|[munpµ]?s|min|h|d|(milli|micro|nano)?sec(ond)?s?|minutes?|hours?|days?|"
    r"by|[kmgt]i?by?|[kmgt]?i?bytes?|[kmgt]?bits?|percent|ratio|count|requests?|ops?|calls?|cel|celsius|"
    r"volts?|amperes?|watts?|joules?|[kmg]?hz|k?g|grams?|[mck]?m|met(er|re)s?|pa|none)"
    r"(/(?i:s|sec|second|min|h))?$",
    "description": r"\S\s+\S",
}


def metric_tables(
    records: Records, fields: Mapping[str, tuple[str, ...]], limits: Limits, options: Options
) -> dict[str, pa.Table]:
    at_ns, _ = records.times(fields["timestamp"], options.fallback_time_ns, needed=True)
    start_ns, unstarted = records.times(fields["start_timestamp"], None, needed=False)
    sent_name = records.text(fields["metric_name"])
    names = _names(sent_name)
    value = records.numbers(fields["value"], pa.float64())
    records.refuse("metric_without_name", pc.equal(names, "").to_numpy(zero_copy_only=False))
    records.refuse("metric_without_value", value.is_null().to_numpy(zero_copy_only=False))
    described = {name: _metadata(records, fields[name], names) for name in ("type", "unit", "description")}

    of_row, first, sets = _series(records, names, list(described.values()), limits, options.metrics.series_key)
    columns = {
        "metric_name": names,
        "tid": pa.array(sets.tids[of_row]),
        "timestamp": timestamps(at_ns // NS_PER_MS, "ms"),
        "value": value,
        "start_timestamp": timestamps(start_ns // NS_PER_MS, "ms", unstarted),
    }
    samples = records.table(SAMPLES, columns, limits)
    at = pa.array(first)
    series = table_of(
        SERIES,
        {
            "tid": pa.array(sets.tids),
            "metric_name": names.take(at),
            "otel_name": sent_name.take(at),
            "type": _types(described["type"]).take(at),
            "unit": described["unit"].take(at),
            "description": described["description"].take(at),
            "labels": sets.labels,
        },
        len(first),
    )
    seen = np.isin(sets.tids, samples.column("tid").to_numpy())
    return {SAMPLES.suffix: samples, SERIES.suffix: series.filter(pa.array(seen & first_of_each(sets.tids)))}


def _metadata(records: Records, keys: Sequence[str], names: pa.Array) -> pa.Array:
    """Pick what describes the metric. What is a label stays among the entries."""
    found = records.text([key for key in keys if key not in _DOUBTFUL])
    name_codes = _codes(names)[0]
    for key in keys:
        if key in _DOUBTFUL:
            open_rows = found.is_null().to_numpy(zero_copy_only=False)
            values = records.text([key], partial(_matching, pattern=_DOUBTFUL[key]), open_rows)
            value_codes = _codes(values)[0]
            rows = value_codes > 0
            pairs = np.unique(np.stack([name_codes[rows], value_codes[rows]]), axis=1)
            if len(np.unique(pairs[0])) == pairs.shape[1]:
                found = pc.coalesce(found, values)
            else:
                # Two values for one metric tell series apart.
                at = np.flatnonzero(rows)
                records.entries.append(Entry(key, at, values, at))
    return found


def _matching(values: pa.Array, pattern: str) -> Mask:
    found: Mask = pc.fill_null(pc.match_substring_regex(as_text(values), pattern), False).to_numpy(zero_copy_only=False)
    return found


def _series(
    records: Records, names: pa.Array, described: list[pa.Array], limits: Limits, key: bytes
) -> tuple[Ints, Ints, LabelSets]:
    """Return the series number of each row, the first row of each series, and the label sets."""
    columns = [_codes(names)[0], *(_codes(column)[0] for column in described)]
    labels = []
    for entry in records.entries:
        codes, texts = _codes(_whole(entry, records.row_count))
        columns.append(codes)
        name = cut_key(_label_key(entry.key), len(entry.rows), limits, records.tally)
        labels.append((prometheus_label(name), codes, texts))
    of_row, first = factorize_rows(*columns)
    every = np.arange(len(first))
    zeros = np.zeros(len(first), np.int64)
    sources = [Source(Rank.NAME, every, [METRIC_NAME], zeros, names.take(pa.array(first)), every)]
    for order, (name, codes, texts) in enumerate(labels):
        code_of_series = codes[first]
        having = np.flatnonzero(code_of_series)
        if name and len(having):
            none, place = zeros[: len(having)], np.full(len(having), order)
            sources.append(Source(Rank.ATTRIBUTE, having, [name], none, texts, code_of_series[having] - 1, place))
    return of_row, first, label_sets(sources, len(first), key)


def _codes(texts: pa.Array) -> tuple[Ints, pa.Array]:
    """Number the distinct texts from 1, with 0 for null. Return the numbers and the texts."""
    encoded = texts.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    return codes, encoded.dictionary


def _whole(entry: Entry, row_count: int) -> pa.Array:
    index = np.zeros(row_count, np.int64)
    absent = np.ones(row_count, np.bool_)
    index[entry.rows] = entry.index
    absent[entry.rows] = False
    return as_text(entry.source.take(pa.array(index, mask=absent)))


def _label_key(key: str) -> str:
    for prefix in LABEL_PREFIXES:
        if key.lower().startswith(prefix) and len(key) > len(prefix):
            return key[len(prefix) :]
    return key


def _names(texts: pa.Array) -> pa.Array:
    """Replace characters that Prometheus does not allow in names; "" where there is no name."""
    encoded = texts.dictionary_encode()
    clean = [_NOT_METRIC.sub("_", text or "") for text in encoded.dictionary.to_pylist()]
    clean = [f"_{name}" if name[:1].isdecimal() else name for name in clean]
    return pa.array(clean, pa.string()).take(encoded.indices).fill_null("")


def _types(texts: pa.Array) -> pa.Array:
    encoded = texts.dictionary_encode()
    known = [text.lower() if text.lower() in _TYPES else "unknown" for text in encoded.dictionary.to_pylist()]
    return pa.array(known, pa.string()).take(encoded.indices).fill_null("unknown")
