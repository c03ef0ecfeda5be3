"""Needle filters: they tell which row groups cannot contain a text of nine bytes or more, or of six digits or more.

Of each run of four neighbouring six-byte pieces of a value, the one with the smallest hash is put into a bloom filter.
A value that contains a text contains all runs of the text, so all pieces chosen from the text are in the filter.
Choosing one piece of each run more than halves the filter. Words need not be known: a text may begin and end anywhere.
Pieces of digits alone are all put into the filter, and a run that has one needs no other: numbers are short, and their
pieces tell more than those of the words before them.
Values of random ids have too many pieces for a small filter. Their runs are longer, so that fewer pieces are chosen,
and digits are nothing special; then only longer texts, such as the ids themselves, can be excluded.

The filters lie in the Parquet file, between the last row group and the footer, where other readers do not look. The
key-value metadata `lakerunner.needles` has their places. A filter consists of blocks of 32 bytes: 240 bits, and a
checksum of them, because a bit lost on a disk would hide rows. A piece has four bits in one block, so a lookup reads 32
bytes per piece.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from numba import njit, uint64

from lakerunner.model.text_bytes import text_bytes

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

NEEDLES_METADATA = b"lakerunner.needles"
#: Filters of the first version do not have all pieces of digits. Readers of it do not look at those of the second.
_VERSION = 2
BLOCK_BYTES = 32
#: Bytes of a piece, and pieces of a run: the first number that leaves the filter sharp.
_PIECE, _RUNS = 6, (4, 12, 24)
#: Shorter texts have no whole run, so filters say nothing about them, unless they have digits.
LEAST_BYTES = _PIECE + _RUNS[0] - 1
#: Texts that are too short for a filter, but tell whether values are written with escapes or have lost characters. A
#: search for the value of a field has to expect those, unless there are none.
MARKS = ("\\", "\ufffd")
#: Bytes of the filters of a row group, as a share of its own.
_SHARE = 0.08
#: A filter is halved as long as at most this share of its bits would be set. One piece in 70 is then found by mistake.
_FULL = 0.35
#: With more bits than this, a filter is made anew with longer runs.
_TOO_FULL = 0.5
#: A filter that gets too full is noticed after a part of the values.
_PARTS = 8
_MAX_LOG_BLOCKS = 24
#: Bytes of filters that wait in memory for the end of their file.
_SPOOL_BYTES = 16 << 20
#: Places for the hashes of a run: a power of two.
_RING = 32
#: Pieces that are remembered while a filter is made: a power of two, and few enough for the fastest cache.
_LATELY = 2_048
_WORDS_PER_BLOCK = BLOCK_BYTES // 8
#: Bits of a block that pieces use; the rest, the highest of its last word, is the checksum.
_BITS, _CHECKSUM_BITS = 240, 16

_PIECE_MASK = uint64((1 << 8 * _PIECE) - 1)
_ZERO, _NINE = ord("0"), ord("9")
_TOP_BIT = uint64(1 << 63)
_MIX, _MIX_AGAIN, _NO_PIECE = uint64(0x9E3779B97F4A7C15), uint64(0xD6E8FEB86659FD93), uint64((1 << 64) - 1)


@dataclass(frozen=True, slots=True)
class NeedleFilter:
    """The place of one filter: the offset in the file, its number of blocks as a power of two, and its runs."""

    offset: int
    log_blocks: int
    run: int
    #: The numbers of the `MARKS` that values contain, as bits; None in files that do not say it.
    marks: int | None = None
    #: Whether all pieces of digits are in the filter. Not in files of the first version.
    digits: bool = False

    def pieces_of(self, text: bytes) -> tuple[int, ...]:
        """What must be in the filter if a value contains the text. Empty for a text that is too short."""
        return pieces_of(text, self.run, digits=self.digits)

    def lacks_mark_of(self, text: str) -> bool:
        """Whether the text contains a mark that no value contains."""
        marks = self.marks
        return marks is not None and any(mark in text and not marks >> bit & 1 for bit, mark in enumerate(MARKS))

    def block_offset(self, piece: int) -> int:
        block = 0 if not self.log_blocks else piece >> (64 - self.log_blocks)
        return self.offset + block * BLOCK_BYTES


class FilterSpool:
    """The filters of a file's row groups, made group by group and written behind the last one."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        #: In memory while they are small, then in a file: the filters of a gigabyte take 80 MB.
        self._bodies = tempfile.SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115  (lives as long as this object)
        self._places: dict[str, list[list[int] | None]] = {name: [] for name in columns}

    def add_group(self, rows: pa.Table, group_bytes: int) -> None:
        """Make the filters of a row group that takes this many bytes."""
        if not rows.num_rows:
            return
        for name in self._columns:
            values = rows.column(name)
            made = filter_of(values, int(group_bytes * _SHARE) // len(self._columns))
            place = None
            if made is not None:
                place = [self._bodies.tell(), made.log_blocks, made.run, marks_of(values), int(made.digits)]
                self._bodies.write(made.words.tobytes())
            self._places[name].append(place)

    def append_to(self, sink: pa.NativeFile) -> dict[bytes, bytes]:
        """Write the filters; return the key-value metadata that leads to them."""
        begin = sink.tell()
        places = {
            name: [None if place is None else [begin + place[0], *place[1:]] for place in of_column]
            for name, of_column in self._places.items()
        }
        self._bodies.seek(0)
        while body := self._bodies.read(_SPOOL_BYTES):
            sink.write(body)
        self._bodies.close()
        if not any(place for of_column in places.values() for place in of_column):
            return {}
        return {NEEDLES_METADATA: orjson.dumps({"version": _VERSION, "columns": places})}


def filters_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[NeedleFilter | None]]:
    """Return column -> the filter of each row group, from the key-value metadata; empty if the file has none."""
    document = (metadata or {}).get(NEEDLES_METADATA)
    found = orjson.loads(document) if document else {}
    if found.get("version") not in (1, _VERSION):
        return {}
    return {
        name: [None if place is None else NeedleFilter(*place[:4], *map(bool, place[4:])) for place in of_column]
        for name, of_column in found["columns"].items()
    }


@dataclass(frozen=True, slots=True)
class MadeFilter:
    words: Words
    run: int

    @property
    def digits(self) -> bool:
        return _has_digits(self.run)

    @property
    def log_blocks(self) -> int:
        return (len(self.words) // _WORDS_PER_BLOCK).bit_length() - 1


def filter_of(values: pa.ChunkedArray, most_bytes: int) -> MadeFilter | None:
    """Return the filter of these texts, of at most so many bytes; None if that is too little, or there is no piece."""
    if most_bytes < BLOCK_BYTES:
        return None
    log_blocks = min((most_bytes // BLOCK_BYTES).bit_length() - 1, _MAX_LOG_BLOCKS)
    for run in _RUNS:
        words = np.zeros(_WORDS_PER_BLOCK << log_blocks, np.uint64)
        for data, ends in _parts(values):
            add_pieces(data, ends, run, _has_digits(run), words, log_blocks)
            if run != _RUNS[-1] and _is_too_full(words):
                break
        else:
            break
    words = _folded(words)
    return MadeFilter(_with_checksums(words), run) if words.any() else None


def marks_of(values: pa.ChunkedArray) -> int:
    """Return the numbers of the marks that some value contains, as bits."""
    found = 0
    for texts in _texts(values):
        data, ends = text_bytes(texts)
        body = data[ends[0] : ends[-1]].tobytes()
        found |= sum(1 << bit for bit, mark in enumerate(MARKS) if mark.encode() in body)
    return found


def _parts(values: pa.ChunkedArray) -> Iterator[tuple[Bytes, npt.NDArray[np.int32]]]:
    """Yield the bytes and offsets of the values, some of them at a time."""
    for texts in _texts(values):
        data, ends = text_bytes(texts)
        if not len(data):
            continue
        size = -(-len(texts) // _PARTS)
        for start in range(0, len(texts), size):
            yield data, ends[start : start + size + 1]


def _is_too_full(words: Words) -> bool:
    return _bits(words) > _TOO_FULL * 64 * len(words)


def _has_digits(run: int) -> bool:
    """Whether all pieces of digits are put into a filter of such runs."""
    return run == _RUNS[0]


@functools.lru_cache(maxsize=1024)
def pieces_of(text: bytes, run: int, *, digits: bool) -> tuple[int, ...]:
    """Return what must be in a filter of such runs if a value contains the text. Empty for a text that is too short."""
    found = np.zeros(2 * len(text) + 1, np.uint64)
    count = choose_pieces(np.frombuffer(text, np.uint8), 0, len(text), run, digits, np.zeros(_RING, np.uint64), found)
    return tuple(sorted({int(piece) for piece in found[:count]}))


def may_hold(block: bytes, piece: int) -> bool:
    """Whether the piece may be in the filter that this block belongs to. Raises ValueError if the block is damaged."""
    words = np.frombuffer(block, np.uint64)
    bits = int.from_bytes(block, "little")
    if bits >> _BITS != int(_checksums(words.reshape(1, -1))[0]):
        raise ValueError("the checksum of a needle filter is wrong")
    wanted = piece * int(_MIX_AGAIN)
    return all(bits >> ((wanted >> (56 - 8 * number) & 255) * _BITS >> 8) & 1 for number in range(4))


def warm() -> None:
    """Compile or load the kernels for the types that ingest and queries use."""
    filter_of(pa.chunked_array([["a line to look at"]]), 1 << 10)
    pieces_of(b"a line to look at", _RUNS[0], digits=True)


def _texts(values: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in values.chunks:
        # A dictionary may have values that no row has. They only make the filter a little less sharp.
        yield chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk


def _folded(words: Words) -> Words:
    """Halve the filter while it stays sharp: neighbouring blocks become one."""
    while len(words) > _WORDS_PER_BLOCK:
        pairs = words.reshape(-1, 2, _WORDS_PER_BLOCK)
        halved = (pairs[:, 0] | pairs[:, 1]).reshape(-1)
        if _bits(halved) > _FULL * 64 * len(halved):
            break
        words = halved
    return words


def _bits(words: Words) -> int:
    return int(np.bitwise_count(words).sum())


def _with_checksums(words: Words) -> Words:
    blocks = words.reshape(-1, _WORDS_PER_BLOCK)
    blocks[:, -1] |= _checksums(blocks) << np.uint64(64 - _CHECKSUM_BITS)
    return words


def _checksums(blocks: Words) -> Words:
    mixed = np.zeros(len(blocks), np.uint64)
    for number in range(_WORDS_PER_BLOCK):
        word = blocks[:, number]
        if number == _WORDS_PER_BLOCK - 1:
            word = word & np.uint64((1 << 64 - _CHECKSUM_BITS) - 1)
        mixed = (mixed ^ word) * np.uint64(_MIX)
        mixed ^= mixed >> np.uint64(32)
    return mixed >> np.uint64(64 - _CHECKSUM_BITS)


@njit(cache=True, nogil=True, inline="always")
def _hash(piece: Any) -> Any:
    mixed = piece * _MIX
    mixed ^= mixed >> uint64(32)
    return mixed * _MIX_AGAIN


@njit(cache=True, nogil=True, inline="always")
def _spread(hashed: Any) -> Any:
    """The hash again, with all values equally likely: the smallest of four are not."""
    return (hashed ^ (hashed >> uint64(29))) * _MIX


@njit(cache=True, nogil=True)
def _choose_of_four(data: Bytes, begin: int, end: int, found: Words) -> int:
    """Do the work of `choose_pieces` for runs of four pieces and all digits, which are most.

    Which piece is the smallest is random, so branches would be mispredicted: without them it takes half the time. The
    hash of digits is 0 in their runs, so that these choose nothing else; all others are larger.
    """
    piece: Any = uint64(0)
    digits = 0
    for at in range(begin, min(begin + _PIECE - 1, end)):
        piece = (piece << uint64(8)) | uint64(data[at])
        digits = (digits + 1) * ((data[at] >= _ZERO) & (data[at] <= _NINE))
    first: Any = _NO_PIECE
    second: Any = _NO_PIECE
    third: Any = _NO_PIECE
    count, whole = 0, begin + LEAST_BYTES - 1
    before: Any = uint64(0)
    for at in range(begin + _PIECE - 1, end):
        piece = ((piece << uint64(8)) | uint64(data[at])) & _PIECE_MASK
        digits = digits + 1 if _ZERO <= data[at] <= _NINE else 0
        hashed = _hash(piece) | _TOP_BIT
        if digits >= _PIECE:
            found[count] = hashed
            count += 1
            hashed = uint64(0)
        least = min(min(first, second), min(third, hashed))
        first, second, third = second, third, hashed
        if at >= whole:
            found[count] = least
            count += (least != before) & (least != uint64(0))
            before = least
    for place in range(count):
        found[place] = _spread(found[place])
    return count


@njit(cache=True, nogil=True)
def choose_pieces(data: Bytes, begin: int, end: int, run: int, digits: bool, ring: Words, found: Words) -> int:
    """Write the chosen pieces of one value to `found`, which has room for two per byte; return their number."""
    if digits:
        return _choose_of_four(data, begin, end, found)
    if end - begin < _PIECE + run - 1:
        return 0
    count = 0
    piece: Any = uint64(0)
    for at in range(begin, begin + _PIECE - 1):
        piece = (piece << uint64(8)) | uint64(data[at])
    least: Any = _NO_PIECE
    place = 0
    for at in range(begin + _PIECE - 1, end):
        piece = ((piece << uint64(8)) | uint64(data[at])) & _PIECE_MASK
        hashed = _hash(piece)
        number = at - begin - _PIECE + 1
        ring[number & (_RING - 1)] = hashed
        is_new = False
        if hashed <= least:
            is_new = hashed != least or place <= number - run
            least, place = hashed, number
        elif place <= number - run:
            # The smallest piece has left the run: look for the next one.
            before = least
            least = _NO_PIECE
            for one in range(number - run + 1, number + 1):
                if ring[one & (_RING - 1)] <= least:
                    least, place = ring[one & (_RING - 1)], one
            is_new = least != before
        if (is_new and number >= run - 1) or number == run - 1:
            found[count] = _spread(least)
            count += 1
    return count


@njit(cache=True, nogil=True)
def add_pieces(
    data: Bytes, offsets: npt.NDArray[np.int32], run: int, digits: bool, words: Words, log_blocks: int
) -> None:
    """Set the bits of the chosen pieces of every value."""
    longest = 0
    for row in range(len(offsets) - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    ring, found = np.zeros(_RING, np.uint64), np.zeros(2 * longest + 1, np.uint64)
    # Lines repeat each other's words: pieces that were added lately need not be added again.
    lately = np.zeros(_LATELY, np.uint64)
    shift = uint64(64 - log_blocks)
    for row in range(len(offsets) - 1):
        begin, end = offsets[row], offsets[row + 1]
        for index in range(choose_pieces(data, begin, end, run, digits, ring, found)):
            chosen = found[index]
            place = (chosen >> uint64(20)) & uint64(_LATELY - 1)
            if lately[place] == chosen:
                continue
            lately[place] = chosen
            block = uint64(0) if log_blocks == 0 else (chosen >> shift) * uint64(_WORDS_PER_BLOCK)
            chosen *= _MIX_AGAIN
            for number in range(4):
                bit = ((chosen >> uint64(56 - 8 * number)) & uint64(255)) * uint64(_BITS) >> uint64(8)
                words[block + (bit >> uint64(6))] |= uint64(1) << (bit & uint64(63))
