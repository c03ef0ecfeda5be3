"""Interned label sets: each is made once and shared by all queries of the process."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import overload

import pyarrow as pa

from lakerunner.model.labels import METRIC_NAME, SERIES_ID_BYTES, LabelSet, series_id
from lakerunner.query.series.classic_names import LE

#: Label sets per cache, at about a kilobyte each. A full cache is emptied: label sets in use soon come back.
_MAX_INTERNED = 500_000
#: Prefix of labels that are packed as escaped JSON. No JSON object begins with it.
_ESCAPED = b"!"


class Interned:
    """Label sets by id, by packed text, or by the series they derive from.

    A series occurs in many segments, and its labels are made only once. Ids are looked up per org: an org that could
    make its files hold the ids of another one must neither see that org's labels nor show it false ones.
    """

    def __init__(self, limit: int = _MAX_INTERNED) -> None:
        self._limit = limit
        self._by_tid: dict[tuple[bytes, int], LabelSet] = {}
        self._derived: dict[tuple[int, LabelSet, str, str], tuple[int, LabelSet]] = {}
        self._by_text: dict[bytes, LabelSet] = {}
        self._lock = threading.Lock()

    def clear(self) -> None:
        with self._lock:
            self._by_tid, self._derived, self._by_text = {}, {}, {}

    def derived(self, parent_tid: int, parent: LabelSet, suffix: str, le: str = "") -> tuple[int, LabelSet]:
        """The id and labels of a classic series of a histogram.

        The id is a hash of the histogram's own. It is as hard to guess as that one, without the key of the lake.
        """
        key = (parent_tid, parent, suffix, le)
        made = self._derived.get(key)
        if made is None:
            labels = parent.with_label(METRIC_NAME, parent.get(METRIC_NAME) + suffix)
            labels = labels.with_label(LE, le) if le else labels
            made = _derived_tid(parent_tid, suffix, le), labels
            with self._lock:
                if len(self._derived) >= self._limit:
                    self._derived = {}
                self._derived[key] = made
        return made

    def of_maps(self, org_id: uuid.UUID, tids: Sequence[int], maps: pa.MapArray) -> list[LabelSet]:
        """The label sets of an org's series. Only those with unknown ids are read from the maps."""
        keys = [(org_id.bytes, tid) for tid in tids]
        found = [self._by_tid.get(key) for key in keys]
        missing = [place for place, labels in enumerate(found) if labels is None]
        for place, made in zip(missing, _of_maps(maps.take(pa.array(missing, pa.int64()))), strict=True):
            with self._lock:
                if len(self._by_tid) >= self._limit:
                    self._by_tid = {}
                found[place] = self._by_tid.setdefault(keys[place], made)
        return [labels for labels in found if labels is not None]

    def of_packed(self, texts: Sequence[bytes]) -> list[LabelSet]:
        """The label sets of packed texts, as `packed` makes them."""
        found = [self._by_text.get(text) for text in texts]
        for place in [place for place, labels in enumerate(found) if labels is None]:
            made = found[place] = unpacked(texts[place])
            with self._lock:
                if len(self._by_text) >= self._limit:
                    self._by_text = {}
                self._by_text[texts[place]] = made
        return [labels for labels in found if labels is not None]


def _derived_tid(parent: int, suffix: str, le: str) -> int:
    text = parent.to_bytes(SERIES_ID_BYTES, "little", signed=True) + f"{suffix}\0{le}".encode()
    return int.from_bytes(series_id(text, b""), "little", signed=True)


def packed(labels: LabelSet) -> bytes:
    """The labels as bytes, for the network."""
    try:
        return labels.to_json()
    except TypeError:
        # Only the text of a query can bring bytes that are not UTF-8. JSON's escapes can represent them.
        return _ESCAPED + json.dumps(labels.pairs).encode()


def unpacked(text: bytes) -> LabelSet:
    if text.startswith(_ESCAPED):
        return LabelSet(tuple((name, value) for name, value in json.loads(text[len(_ESCAPED) :])))
    return LabelSet.from_json(text)


INTERNED = Interned()


class LazyLabels(Sequence[LabelSet]):
    """Label sets that are made on first access. Callers that know the series by their ids never access them."""

    def __init__(self, make: Callable[[], list[LabelSet]]) -> None:
        self._make = make
        self._made: list[LabelSet] | None = None

    def _all(self) -> list[LabelSet]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[LabelSet]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> LabelSet: ...
    @overload
    def __getitem__(self, index: slice) -> list[LabelSet]: ...
    def __getitem__(self, index: int | slice) -> LabelSet | list[LabelSet]:
        return self._all()[index]


def _of_maps(maps: pa.MapArray) -> list[LabelSet]:
    offsets = maps.offsets.to_pylist()
    keys, values = texts(maps.keys), texts(maps.items)
    return [
        LabelSet(tuple(sorted(zip(keys[begin:end], values[begin:end], strict=True))))
        for begin, end in pairwise(offsets)
    ]


def texts(column: pa.Array) -> list[str]:
    """The values as Python strings. Each distinct string is made once."""
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    return [distinct[code] for code in encoded.indices.to_pylist()]
