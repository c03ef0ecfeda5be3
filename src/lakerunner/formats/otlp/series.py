"""Group points into series, and build the series' names and labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints, ranges
from lakerunner.formats.decoded import Tally, table_of
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import MetricOptions
from lakerunner.formats.otlp.anyvalue import Pairs
from lakerunner.formats.otlp.factorize import factorize_lists, factorize_rows
from lakerunner.formats.otlp.labels import LabelSets, Rank, Source, label_sets
from lakerunner.formats.otlp.metric_metadata import MetricMetadata
from lakerunner.formats.otlp.targets import Targets
from lakerunner.model.labels import METRIC_NAME, prometheus_label
from lakerunner.model.signals.metrics import SERIES


@dataclass(frozen=True, slots=True)
class Variants:
    """What distinguishes the series of one summary point: a suffix of the name, or a quantile."""

    suffixes: tuple[str, ...] = ("",)
    quantiles: tuple[str, ...] = ("",)


@dataclass(frozen=True, slots=True)
class Grouped:
    """The series of a set of points: `of_point[i]` is the row of `table` for point i."""

    of_point: Ints
    tids: Ints
    table: pa.Table


def group(
    attributes: pa.ListArray,
    metric_of: Ints,
    variant_of: Ints,
    variants: Variants,
    metadata: MetricMetadata,
    targets: Targets,
    options: MetricOptions,
    limits: Limits,
    tally: Tally,
) -> Grouped:
    """Return the series of points. Points with equal metric, variant and attributes belong to one series."""
    pairs = Pairs.of(attributes, limits, tally)
    texts = pairs.values.text().dictionary_encode()
    value = pc.fill_null(texts.indices, len(texts.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    values = pa.concat_arrays([texts.dictionary, pa.array([""])])
    sizes = np.bincount(pairs.rows, minlength=pairs.size)
    set_of, _ = factorize_lists(pairs.codes.astype(np.int64) * len(values) + value, sizes)
    of_point, point = factorize_rows(set_of, metadata.identity_of[metric_of], variant_of)
    metric, variant = metric_of[point], variant_of[point]

    starts = np.cumsum(sizes) - sizes
    taken = ranges(starts[point], sizes[point])
    owner = np.repeat(np.arange(len(point)), sizes[point])
    sources = [
        _attributes(pairs, owner, taken, values, value, tally),
        *targets.sources(metadata.resource_of[metric], metadata.scope_of[metric], options),
        *_variant_sources(variants, variant),
    ]
    names = metadata.named(
        metric, [variants.suffixes[v] for v in variant.tolist()] if len(variants.suffixes) > 1 else None
    )
    every = np.arange(len(point))
    sources.append(Source(Rank.NAME, every, [METRIC_NAME], np.zeros(len(point), np.int64), names, every))
    sets = label_sets(sources, len(point), options.series_key)
    return Grouped(of_point, sets.tids, _table(metadata, metric, names, sets))


def _attributes(pairs: Pairs, owner: Ints, taken: Ints, values: pa.Array, value: Ints, tally: Tally) -> Source:
    names = [prometheus_label(key) for key in pairs.keys]
    by_key = np.argsort(np.argsort(np.array(pairs.keys, dtype=object))) if pairs.keys else np.zeros(0, np.int64)
    code = pairs.codes[taken].astype(np.int64)
    if "" in names:
        named = code != names.index("")
        tally.shorten("attribute_without_name", int(np.count_nonzero(~named)))
        owner, taken, code = owner[named], taken[named], code[named]
    return Source(Rank.ATTRIBUTE, owner, names, code, values, value[taken], by_key[code])


def _variant_sources(variants: Variants, variant: Ints) -> list[Source]:
    if len(variants.quantiles) == 1:
        return []
    series = np.arange(len(variant))
    zeros = np.zeros(len(variant), np.int64)
    return [Source(Rank.TARGET, series, ["quantile"], zeros, pa.array(variants.quantiles, pa.string()), variant)]


def _table(metadata: MetricMetadata, metric: Ints, names: pa.Array, sets: LabelSets) -> pa.Table:
    at = pa.array(metric)
    columns = {
        "tid": pa.array(sets.tids),
        "metric_name": names,
        "otel_name": metadata.otel_name.take(at),
        "type": metadata.type.take(at),
        "unit": metadata.unit.take(at),
        "description": metadata.description.take(at),
        "temporality": metadata.temporality.take(at),
        "monotonic": metadata.monotonic.take(at),
        "labels": sets.labels,
    }
    return table_of(SERIES, columns, len(metric))


def first_of_each(tids: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that are the first with their tid."""
    first = np.zeros(len(tids), np.bool_)
    first[np.unique(tids, return_index=True)[1]] = True
    return first
