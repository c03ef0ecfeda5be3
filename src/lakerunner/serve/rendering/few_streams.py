"""Renders few log entries as Loki's streams: one kernel groups and orders them by their labels, and writes them.

With many entries, labels are handled once per distinct set (`streams.py`). The calls that this takes cost more than
rendering a screen of entries, nearly all of which have labels of their own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit

from lakerunner.model.byte_copy import put_bytes
from lakerunner.model.text_bytes import read_only, text_bytes
from lakerunner.serve.rendering.entry_kernel import ENTRY_BYTES, put_escaped, put_integer, total_escaped_bytes

_COMMA, _OPEN, _CLOSE, _QUOTE = ord(","), ord("{"), ord("}"), ord('"')
_HEAD, _VALUES, _FOOT = (np.frombuffer(text, np.uint8) for text in (b'{"stream":', b',"values":[', b"]}"))
_BEGIN, _MIDDLE, _END = (np.frombuffer(text, np.uint8) for text in (b'["', b'","', b"]"))
_METADATA, _PARSED = (np.frombuffer(text, np.uint8) for text in (b'"structuredMetadata":', b'"parsed":'))
#: Upper bound of what is written beside labels, lines and times.
_STREAM_BYTES = 64


def few_streams(batch: pa.RecordBatch, *, categorized: bool) -> bytes:
    """The members of the `result` array, joined by commas. The columns are those of an answer, in their order."""
    times, lines, stream, metadata, parsed = batch.columns
    if pa.types.is_dictionary(stream.type):
        codes, words = stream.indices.to_numpy(), stream.dictionary
    else:
        codes, words = np.arange(len(stream), dtype=np.int32), stream
    codes.flags.writeable = False
    line_bytes, line_places = text_bytes(_plain(lines))
    word_bytes, word_places = text_bytes(words)
    metadata_bytes, metadata_places = text_bytes(_plain(metadata))
    parsed_bytes, parsed_places = text_bytes(_plain(parsed))
    times_ns = read_only(times.buffers()[1], np.int64)[times.offset : times.offset + len(times)]
    labels_size = int(metadata_places[-1] - metadata_places[0] + parsed_places[-1] - parsed_places[0])
    labels_size += _chosen_bytes(word_places, codes)
    size = total_escaped_bytes(line_bytes, line_places) + labels_size + len(times) * (ENTRY_BYTES + _STREAM_BYTES)
    out = np.empty(size, np.uint8)
    length = _write(
        times_ns,
        line_bytes,
        line_places,
        codes,
        word_bytes,
        word_places,
        metadata_bytes,
        metadata_places,
        parsed_bytes,
        parsed_places,
        categorized,
        np.empty(labels_size + 2 * len(times), np.uint8),
        out,
    )
    return out[:length].tobytes()


@njit(cache=True, nogil=True)
def _chosen_bytes(places, codes):  # type: ignore[no-untyped-def]
    """The length of the words that the codes choose."""
    total = 0
    for code in codes:
        total += places[code + 1] - places[code]
    return total


def _plain(texts: pa.Array) -> pa.Array:
    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


@njit(cache=True, nogil=True)
def _put_members(data, begin, end, first, out, at):  # type: ignore[no-untyped-def]
    """Write the members of an object behind those that begin at `first`."""
    if end - begin > 2:
        if at > first:
            out[at] = _COMMA
            at += 1
        at = put_bytes(data, begin + 1, end - 1, out, at)
    return at


@njit(cache=True, nogil=True)
def _put_category(name, data, begin, end, first, out, at):  # type: ignore[no-untyped-def]
    """Write an object under a name behind what begins at `first`, unless it is empty."""
    if end - begin > 2:
        if at > first:
            out[at] = _COMMA
            at += 1
        at = put_bytes(name, 0, len(name), out, at)
        at = put_bytes(data, begin, end, out, at)
    return at


@njit(cache=True, nogil=True)
def _is_before(labels, places, skip, one, other):  # type: ignore[no-untyped-def]
    """Whether the labels of an entry come before those of another. The first `skip` bytes are the same for all."""
    length, size = places[one + 1] - places[one], places[other + 1] - places[other]
    begin, start = np.uint64(places[one]), np.uint64(places[other])
    for i in range(np.uint64(skip), np.uint64(min(length, size))):
        if labels[begin + i] != labels[start + i]:
            return labels[begin + i] < labels[start + i]
    return length < size


@njit(cache=True, nogil=True)
def _common(labels, places):  # type: ignore[no-untyped-def]
    """How many bytes all labels begin with."""
    same = np.uint64(places[1])
    for entry in range(1, len(places) - 1):
        start = np.uint64(places[entry])
        same = min(same, np.uint64(places[entry + 1]) - start)
        for i in range(same):
            if labels[i] != labels[start + i]:
                same = np.uint64(i)
                break
    return same


@njit(cache=True, nogil=True)
def _sorted(labels, places):  # type: ignore[no-untyped-def]
    """The entries in the order of their labels; those with equal labels as they are."""
    count = len(places) - 1
    order, merged = np.arange(count), np.empty(count, np.int64)
    skip = _common(labels, places)
    width = 1
    while width < count:
        for begin in range(0, count, 2 * width):
            middle, end = min(begin + width, count), min(begin + 2 * width, count)
            left, right = begin, middle
            for at in range(begin, end):
                if right < end and (left == middle or _is_before(labels, places, skip, order[right], order[left])):
                    merged[at] = order[right]
                    right += 1
                else:
                    merged[at] = order[left]
                    left += 1
        order, merged = merged, order
        width *= 2
    return order


@njit(cache=True, nogil=True)
def _write(  # type: ignore[no-untyped-def]
    times, lines, line_places, codes, words, word_places, metadata, metadata_places, parsed, parsed_places,
    categorized, labels, out,
):  # fmt: skip
    """Write one object per label set, in the order of their texts. Returns the length."""
    count = len(times)
    places = np.zeros(count + 1, np.int64)
    at = 0
    for entry in range(count):
        word = codes[entry]
        first = at + 1
        labels[at] = _OPEN
        at = _put_members(words, word_places[word], word_places[word + 1], first, labels, first)
        if not categorized:
            at = _put_members(metadata, metadata_places[entry], metadata_places[entry + 1], first, labels, at)
            at = _put_members(parsed, parsed_places[entry], parsed_places[entry + 1], first, labels, at)
        labels[at] = _CLOSE
        at += 1
        places[entry + 1] = at
    order = _sorted(labels, places)
    at, last = 0, -1
    for entry in order:
        if last >= 0 and not _is_before(labels, places, 0, last, entry):
            out[at] = _COMMA
            at += 1
        else:
            if last >= 0:
                at = put_bytes(_FOOT, 0, 2, out, at)
                out[at] = _COMMA
                at += 1
            at = put_bytes(_HEAD, 0, len(_HEAD), out, at)
            at = put_bytes(labels, places[entry], places[entry + 1], out, at)
            at = put_bytes(_VALUES, 0, len(_VALUES), out, at)
        last = entry
        at = put_bytes(_BEGIN, 0, 2, out, at)
        at = put_integer(times[entry], out, at)
        at = put_bytes(_MIDDLE, 0, 3, out, at)
        at = put_escaped(lines, line_places[entry], line_places[entry + 1], out, at)
        out[at] = _QUOTE
        at += 1
        if categorized:
            out[at], out[at + 1] = _COMMA, _OPEN
            first = at + 2
            at = _put_category(
                _METADATA, metadata, metadata_places[entry], metadata_places[entry + 1], first, out, first
            )
            at = _put_category(_PARSED, parsed, parsed_places[entry], parsed_places[entry + 1], first, out, at)
            out[at] = _CLOSE
            at += 1
        at = put_bytes(_END, 0, 1, out, at)
    return put_bytes(_FOOT, 0, 2, out, at) if count else at
