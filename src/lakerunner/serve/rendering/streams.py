"""Renders log entries as Loki's streams: grouped by their labels, without a Python object per entry.

The columns of labels are JSON objects in text, most of which repeat, so labels are handled once per distinct set.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.serve.rendering.entry_kernel import ENTRY_BYTES, total_escaped_bytes, write_streams
from lakerunner.serve.rendering.few_streams import few_streams
from lakerunner.serve.rendering.values import Pieces

#: Categories of labels, each a column of the answer: from the stream, stored with the entry, made by the query.
STREAM, METADATA, PARSED = "stream", "metadata", "parsed"
TIME, LINE = "timestamp", "line"
_FOOT = np.frombuffer(b"]}", np.uint8)
_NO_TAIL = Pieces.of([b""])
#: Up to this many entries, each is written by itself: the calls of Arrow's kernels would take longer.
_FEW = 512


def streams_json(batches: Sequence[pa.RecordBatch], *, categorized: bool) -> bytes:
    """The members of the `result` array, joined by commas.

    Categorized, entries are grouped by the labels of their stream alone, and each entry has its own other labels.
    """
    rows = sum(batch.num_rows for batch in batches)
    if rows <= _FEW:
        return few_streams(_one(batches), categorized=categorized) if rows else b""
    table = pa.Table.from_batches(batches)
    times = _array(table, TIME).cast(pa.int64()).to_numpy()
    data, offsets = text_buffers(_array(table, LINE))
    if categorized:
        groups, texts = _coded(table, STREAM)
        tail_of, (inside, made) = _joined_codes(_coded(table, METADATA), _coded(table, PARSED))
        tails = pieces_of(_categories(inside, made))
    else:
        groups, texts = coded_labels(table)
        tail_of, tails = np.zeros(len(times), np.int64), _NO_TAIL
    groups, texts = _in_order(groups, texts)
    heads = pieces_of(pc.binary_join_element_wise('{"stream":', texts, ',"values":[', ""))
    order = np.argsort(groups, kind="stable")
    size = total_escaped_bytes(data, offsets) + len(times) * ENTRY_BYTES
    size += len(heads.joined) + len(texts) * (len(_FOOT) + 1)
    size += int(np.diff(tails.offsets)[tail_of].sum())
    out = np.empty(size, np.uint8)
    length = write_streams(
        order,
        groups,
        times,
        data,
        offsets,
        heads.joined,
        heads.offsets,
        _FOOT,
        tails.joined,
        tails.offsets,
        tail_of,
        out,
    )
    return out[:length].tobytes()


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches, which are not all empty, as one."""
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.dictionary_decode() if name == LINE and pa.types.is_dictionary(array.type) else array


def coded_labels(table: pa.Table, names: tuple[str, ...] | None = None) -> tuple[Ints, pa.Array]:
    """For each entry the number of its label set, and the distinct sets as JSON; with `names`, only these labels."""
    codes, sets = _joined_codes(*(_coded(table, name) for name in (STREAM, METADATA, PARSED)))
    texts = _merged(sets)
    if names is not None:
        texts = pa.array([_only(text, names) for text in texts.to_pylist()], pa.string())
    return codes, texts


def _only(text: str, names: tuple[str, ...]) -> str:
    labels = orjson.loads(text)
    return orjson.dumps({name: labels[name] for name in names if name in labels}).decode()


def _coded(table: pa.Table, name: str) -> tuple[Ints, pa.Array]:
    """For each entry the number of its text, and the distinct texts."""
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    array = column.combine_chunks()
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.cast(pa.string())


def _joined_codes(*parts: tuple[Ints, pa.Array]) -> tuple[Ints, list[pa.Array]]:
    """For each entry the number of its combination, and of each distinct combination the texts."""
    codes, _ = parts[0]
    chosen = [np.arange(len(parts[0][1]))]
    for more, texts in parts[1:]:
        pairs, codes = np.unique(codes * max(len(texts), 1) + more, return_inverse=True)
        chosen = [each[pairs // max(len(texts), 1)] for each in chosen]
        chosen.append(pairs % max(len(texts), 1))
    texts = [part[1].take(pa.array(rows)) for part, rows in zip(parts, chosen, strict=True)]
    return codes.astype(np.int64), texts


def _merged(sets: Sequence[pa.Array]) -> pa.Array:
    """Join JSON objects that have no name in common."""
    inner = [pc.utf8_slice_codeunits(each, 1, -1) for each in sets]
    return pc.binary_join_element_wise("{", _listed(inner), "}", "")


def _listed(members: Sequence[pa.Array]) -> pa.Array:
    """Join the texts that are not empty with commas."""
    listed = members[0]
    for more in members[1:]:
        both = pc.and_(pc.not_equal(listed, ""), pc.not_equal(more, ""))
        listed = pc.binary_join_element_wise(listed, pc.if_else(both, ",", ""), more, "")
    return listed


def _categories(metadata: pa.Array, parsed: pa.Array) -> pa.Array:
    """The third element of a categorized entry, with the comma before it."""
    members = [
        pc.if_else(pc.equal(texts, "{}"), "", pc.binary_join_element_wise(name, texts, ""))
        for name, texts in (('"structuredMetadata":', metadata), ('"parsed":', parsed))
    ]
    return pc.binary_join_element_wise(",{", _listed(members), "}", "")


def _in_order(groups: Ints, texts: pa.Array) -> tuple[Ints, pa.Array]:
    """The groups in the order of their labels. Texts that no entry has are left out."""
    used = np.unique(groups)
    texts = texts.take(pa.array(used))
    ranked = pc.sort_indices(texts).to_numpy()
    place = np.empty(len(ranked), np.int64)
    place[ranked] = np.arange(len(ranked))
    return place[np.searchsorted(used, groups)], texts.take(pa.array(ranked))


def pieces_of(texts: pa.Array) -> Pieces:
    data, offsets = text_buffers(texts)
    return Pieces(data, offsets)


def text_buffers(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints]:
    """The bytes of all texts, and where each begins."""
    large = texts.cast(pa.large_string())
    _, offsets, data = large.buffers()
    places = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    joined = np.frombuffer(data or b"", np.uint8)
    joined.flags.writeable = False
    return joined, places
