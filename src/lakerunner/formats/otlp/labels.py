"""Build the label sets and ids of distinct series column-wise. The results equal those of `LabelSet`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints
from lakerunner.model.labels import METRIC_NAME, series_id


class Rank(enum.IntEnum):
    """Precedence of label sources: the lowest rank wins. Two attributes with one name are joined by a semicolon."""

    NAME = 0
    TARGET = 1
    SCOPE = 2
    ATTRIBUTE = 3
    PROMOTED = 4


@dataclass(frozen=True, slots=True)
class Source:
    """Labels from one source: series `series[i]` has the label `names[name[i]]` = `values[value[i]]`."""

    rank: Rank
    series: Ints
    names: Sequence[str]
    name: Ints
    values: pa.Array
    value: Ints
    #: The order in which attributes with one label name are joined: the order of their original keys.
    order: Ints | None = None


@dataclass(frozen=True, slots=True)
class LabelSets:
    """The id of each series, and its labels without the metric name."""

    tids: Ints
    labels: pa.Array


@dataclass(slots=True)
class _Flat:
    """All labels of all series, ordered by series and name."""

    series: Ints
    name: Ints
    rank: Ints
    value: Ints
    values: pa.Array

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        self.series, self.name, self.rank, self.value = (
            column[mask] for column in (self.series, self.name, self.rank, self.value)
        )


def label_sets(sources: Sequence[Source], series_count: int, key: bytes) -> LabelSets:
    names = sorted({name for source in sources for name in source.names})
    flat = _flatten(sources, names)
    _resolve_duplicates(flat)
    flat.keep(pc.greater(pc.binary_length(flat.values), 0).to_numpy(zero_copy_only=False)[flat.value])
    shown = np.array([name != METRIC_NAME for name in names], np.bool_)[flat.name]
    labels = pa.MapArray.from_arrays(
        _offsets(flat.series[shown], series_count),
        pa.array(names, pa.string()).take(pa.array(flat.name[shown])),
        flat.values.take(pa.array(flat.value[shown])),
    )
    return LabelSets(_tids(flat, names, series_count, key), labels)


def _flatten(sources: Sequence[Source], names: list[str]) -> _Flat:
    place = {name: i for i, name in enumerate(names)}
    series, name, rank, value, tie, values = [], [], [], [], [], []
    start = 0
    for source in sources:
        series.append(source.series)
        name.append(np.array([place[n] for n in source.names], np.int64)[source.name])
        rank.append(np.full(len(source.series), int(source.rank)))
        value.append(source.value + start)
        tie.append(np.zeros(len(source.series), np.int64) if source.order is None else source.order)
        values.append(pc.fill_null(source.values, ""))
        start += len(source.values)
    columns = [np.concatenate(column) for column in (series, name, rank, value, tie)]
    order = np.lexsort((np.arange(len(columns[0])), columns[4], columns[2], columns[1], columns[0]))
    at, label, held, chosen = (column[order] for column in columns[:4])
    return _Flat(at, label, held, chosen, pa.concat_arrays(values))


def _resolve_duplicates(flat: _Flat) -> None:
    """Keep one label per name and series."""
    again = np.zeros(len(flat.series), np.bool_)
    again[1:] = (flat.series[1:] == flat.series[:-1]) & (flat.name[1:] == flat.name[:-1])
    if not again.any():
        return
    heads = np.flatnonzero(~again)
    ends = np.append(heads[1:], len(again))
    crowded = np.flatnonzero((ends - heads > 1) & (flat.rank[heads] == Rank.ATTRIBUTE))
    joined = []
    # This loop sees only labels that several attributes of a series claim, such as "a.b" and "a_b".
    for head, end in zip(heads[crowded].tolist(), ends[crowded].tolist(), strict=True):
        claims = head + np.flatnonzero(flat.rank[head:end] == Rank.ATTRIBUTE)
        joined.append(";".join(flat.values.take(pa.array(flat.value[claims])).to_pylist()))
        flat.value[head] = len(flat.values) + len(joined) - 1
    flat.values = pa.concat_arrays([flat.values, pa.array(joined, pa.string())])
    flat.keep(~again)


def _tids(flat: _Flat, names: list[str], series_count: int, key: bytes) -> Ints:
    # Arrow joins the bytes that LabelSet.tid hashes, so that Python handles one value per series.
    name = pa.array([n.encode() + b"\xff" for n in names], pa.binary()).take(pa.array(flat.name))
    value = flat.values.cast(pa.binary()).take(pa.array(flat.value))
    pieces = pc.binary_join_element_wise(name, value, pa.scalar(b"\xfe", pa.binary()), pa.scalar(b"", pa.binary()))
    wholes = pc.binary_join(
        pa.ListArray.from_arrays(_offsets(flat.series, series_count), pieces), pa.scalar(b"", pa.binary())
    )
    return np.frombuffer(b"".join([series_id(whole, key) for whole in wholes.to_pylist()]), "<i8")


def _offsets(series: Ints, series_count: int) -> pa.Array:
    sizes = np.bincount(series, minlength=series_count)
    return pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())
