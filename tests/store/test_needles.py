"""Needle filters find every text that is there, miss nearly all others, and stay small."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.store import needles
from lakerunner.store.needles import (
    BLOCK_BYTES,
    LEAST_BYTES,
    MadeFilter,
    NeedleFilter,
    filter_of,
    may_hold,
    pieces_of,
)


def holds(made: MadeFilter | None, text: bytes) -> bool:
    """Whether the filter allows that a value contains the text."""
    assert made is not None
    body = memoryview(made.words).cast("B")
    place = NeedleFilter(0, made.log_blocks, made.run, None, made.digits)
    places = [(place.block_offset(piece), piece) for piece in place.pieces_of(text)]
    return all(may_hold(bytes(body[at : at + BLOCK_BYTES]), piece) for at, piece in places)


#: Ordinary texts, and texts of digits with something between them.
_values = st.one_of(st.text(max_size=60), st.text("0123456789", max_size=40), st.text("0123456789-x", max_size=60))


@pytest.mark.parametrize(("run", "digits"), [(4, True), (4, False), (12, False), (24, False)])
@given(st.lists(_values, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_every_text_within_a_value_is_found(run: int, digits: bool, values: list[str], choose: random.Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(needles, "_RUNS", (run,))
        patch.setattr(needles, "_has_digits", lambda run: digits)
        made = filter_of(pa.chunked_array([values], pa.string()), 1 << 12)
    for value in values:
        body = value.encode()
        begin = choose.randrange(len(body) + 1)
        part = body[begin : choose.randrange(begin, len(body) + 1)]
        pieces = pieces_of(part, run, digits=digits)
        if pieces:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(needles, "_has_digits", lambda run: digits)
                assert holds(made, part)
        has_number = digits and re.search(rb"[0-9]{6}", part) is not None
        assert bool(pieces) == (len(part) >= LEAST_BYTES - 4 + run or has_number)


def lines(count: int) -> list[str]:
    chosen = random.Random(5)
    return [
        f"charged payment-{chosen.randrange(10**9):09} of order {chosen.getrandbits(64):016x}" for _ in range(count)
    ]


def test_texts_that_are_not_there_are_excluded() -> None:
    made = filter_of(pa.chunked_array([lines(20_000)]), 1 << 20)
    other = random.Random(6)
    assert made is not None and made.run == 4
    assert holds(made, b"charged payment-")
    assert sum(holds(made, b"order %016x" % other.getrandbits(64)) for _ in range(500)) <= 2
    assert sum(holds(made, b"%012x" % other.getrandbits(48)) for _ in range(500)) <= 25
    assert holds(made, b"short"), "too short a text is never excluded"


def test_numbers_are_found_by_six_digits() -> None:
    made = filter_of(pa.chunked_array([lines(20_000)]), 1 << 20)
    other = random.Random(6)
    assert sum(holds(made, b"payment-%09d" % other.randrange(10**9)) for _ in range(500)) <= 5
    assert sum(holds(made, b"%09d" % other.randrange(10**9)) for _ in range(500)) <= 5
    numbers = [line.split()[1].encode() for line in lines(200)]
    assert all(holds(made, number[begin:end]) for number in numbers for begin in (0, 5, 8) for end in (15, 17))


def test_random_ids_get_longer_runs() -> None:
    chosen = random.Random(5)
    ids = [f"{chosen.getrandbits(240):060x}" for _ in range(10_000)]
    made = filter_of(pa.chunked_array([ids]), 1 << 16)
    assert made is not None and made.run > 4
    assert all(holds(made, each[10:50].encode()) for each in ids[:500])
    assert sum(holds(made, b"%040x" % chosen.getrandbits(160)) for _ in range(500)) <= 50


def test_a_filter_is_as_small_as_its_content_allows() -> None:
    made = filter_of(pa.chunked_array([["the same line again and again"] * 50_000]), 1 << 20)
    assert made is not None and made.words.nbytes <= 8 * BLOCK_BYTES
    limited = filter_of(pa.chunked_array([lines(20_000)]), 10_000)
    assert limited is not None and limited.words.nbytes <= 10_000
    assert filter_of(pa.chunked_array([lines(10)]), BLOCK_BYTES - 1) is None
    assert filter_of(pa.chunked_array([["short", None, ""]]), 1 << 12) is None


def test_slices_nulls_and_dictionaries_are_read_as_they_are() -> None:
    values = pa.array(["not part of the slice", "the first of the slice", None, "the last of the slice"])
    for chunks in ([values.slice(1, 1), values.slice(2)], [values.slice(1).dictionary_encode()]):
        made = filter_of(pa.chunked_array(chunks), 1 << 12)
        assert holds(made, b"first of the") and holds(made, b"last of the")
        assert not holds(made, b"not part of")


def test_a_damaged_block_is_noticed() -> None:
    made = filter_of(pa.chunked_array([["a line to look at"]]), BLOCK_BYTES)
    assert made is not None
    body = bytearray(memoryview(made.words).cast("B"))
    (piece, *_) = pieces_of(b"a line to look", made.run, digits=made.digits)
    assert may_hold(bytes(body), piece)
    for bit in range(256):
        body[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="checksum"):
            may_hold(bytes(body), piece)
        body[bit // 8] ^= 1 << bit % 8


def test_files_of_others_and_of_later_releases_have_no_filters() -> None:
    assert needles.filters_of(None) == {}
    assert needles.filters_of({needles.NEEDLES_METADATA: b'{"version": 3, "columns": {}}'}) == {}


def test_files_of_the_first_version_have_the_filters_that_they_say() -> None:
    document = b'{"version": 1, "columns": {"message": [[4096, 3, 4, 1], null, [8192, 2, 12]]}}'
    places = needles.filters_of({needles.NEEDLES_METADATA: document})["message"]
    assert places == [NeedleFilter(4096, 3, 4, 1), None, NeedleFilter(8192, 2, 12)]
    assert places[0] is not None and not places[0].digits
    assert not places[0].pieces_of(b"1234567"), "the filter has only some pieces of numbers"


@pytest.mark.parametrize(
    ("lines", "absent"),
    [
        (["plain"], ["\\", "\ufffd", "a\\b"]),
        (["plain", "C:\\temp", None], ["\ufffd"]),
        (["lost \ufffd", "C:\\"], []),
        (["sliced away \\", "plain"], ["\\", "\ufffd", "a\\b"]),
    ],
)
def test_marks_tell_what_no_value_contains(lines: list[str | None], absent: list[str]) -> None:
    values = pa.chunked_array([pa.array(lines).slice(lines[0] == "sliced away \\")])
    place = NeedleFilter(0, 0, 4, needles.marks_of(values))
    texts = ["\\", "\ufffd", "a\\b", "plain", "\\ \ufffd"]
    assert [text for text in texts[:3] if place.lacks_mark_of(text)] == absent
    assert not place.lacks_mark_of("plain")
    assert not any(NeedleFilter(0, 0, 4).lacks_mark_of(text) for text in texts)
