"""Pages that are decoded here: the same values as pyarrow's, and an error for damaged bytes."""

from __future__ import annotations

import datetime
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.scan.rows.parquet import page_values
from lakerunner.query.scan.rows.parquet.page_file import Chunk, LeafBytes
from lakerunner.query.scan.rows.parquet.page_kernels import ADDRESS, PACKED_BYTES, VALUES, page_heads
from lakerunner.query.scan.rows.parquet.page_values import KeptTexts, Wanted, columns_of, form_of
from lakerunner.query.scan.rows.parquet.page_values import tested_texts as masks_of

_CODED = pa.dictionary(pa.int32(), pa.string())
_texts = st.one_of(st.text(max_size=40), st.sampled_from(["", "a", "a text that repeats", "ü" * 30]))
_wide = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3), st.integers(10**15, 10**15 + 10**6))
_CASES = {
    "texts": (pa.string(), "DELTA_LENGTH_BYTE_ARRAY", _texts),
    "coded texts": (pa.string(), None, _texts),
    "wide integers": (pa.int64(), "DELTA_BINARY_PACKED", _wide),
    "coded integers": (pa.int64(), None, _wide),
    "integers": (pa.int32(), "DELTA_BINARY_PACKED", st.integers(-(2**31), 2**31 - 1)),
    "flags": (pa.uint32(), None, st.integers(0, 2**32 - 1)),
    "unsigned integers": (pa.uint32(), "DELTA_BINARY_PACKED", st.integers(0, 2**32 - 1)),
    "remainders": (pa.int16(), None, st.integers(0, 999)),
    "times": (pa.timestamp("us", "UTC"), "DELTA_BINARY_PACKED", st.integers(0, 2**50)),
    "floats": (pa.float64(), "BYTE_STREAM_SPLIT", st.floats(allow_nan=False)),
}


def _written(
    values: pa.Array,
    encoding: str | None,
    page_bytes: int,
    *,
    nullable: bool,
    codec: str = "zstd",
    checksums: bool = True,
) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table([values], schema=pa.schema([pa.field("x", values.type, nullable=nullable)]))
    options = {"use_dictionary": True} if encoding is None else {"use_dictionary": False, "column_encoding": encoding}
    pq.write_table(
        table, sink, compression=codec, data_page_size=page_bytes, write_batch_size=7, write_page_checksum=checksums,
        row_group_size=max(1, len(values)), **options,
    )  # fmt: skip
    return sink.getvalue().to_pybytes()


def _leaf(body: bytes) -> tuple[pa.Field, LeafBytes, int]:
    metadata = pq.read_metadata(pa.BufferReader(body))
    chunk = metadata.row_group(0).column(0)
    field = metadata.schema.to_arrow_schema().field(0)
    if pa.types.is_string(field.type) and chunk.has_dictionary_page:
        field = field.with_type(_CODED)
    data = chunk.data_page_offset
    start = min(chunk.dictionary_page_offset, data) if chunk.has_dictionary_page else data
    pages = body[data : start + chunk.total_compressed_size]
    optional = metadata.schema.column(0).max_definition_level == 1
    return (
        field,
        LeafBytes(Chunk.of(chunk), body[start:data], [pages], is_flat=True, is_optional=optional),
        metadata.num_rows,
    )


def values_of(field: pa.Field, leaf: LeafBytes, rows: int, span: tuple[int, int] | None = None) -> pa.Array | None:
    """The values of one column; None if pyarrow must decode them."""
    form = form_of(field.type, leaf)
    if form is None:
        return None
    (found,) = columns_of([Wanted(field.type, form, leaf, rows, *(span or (0, rows)))])
    return found


@pytest.mark.parametrize("case", _CASES)
@settings(max_examples=25)
@given(data=st.data())
def test_values_are_those_of_pyarrow(case: str, data: st.DataObject) -> None:
    kind, encoding, values = _CASES[case]
    nullable = data.draw(st.booleans())
    drawn = data.draw(st.lists(st.none() | values if nullable else values, min_size=1, max_size=80))
    repeated = pa.array(drawn * data.draw(st.sampled_from([1, 1, 40])), kind)
    codec = data.draw(st.sampled_from(["zstd", "none"]))
    body = _written(repeated, encoding, data.draw(st.sampled_from([40, 1 << 20])), nullable=nullable, codec=codec)
    field, leaf, rows = _leaf(body)
    found = values_of(field, leaf, rows)
    assert found is not None
    found.validate(full=True)
    plain = found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
    assert plain.equals(repeated)
    assert found.null_count == repeated.null_count
    begin = data.draw(st.integers(0, rows))
    end = data.draw(st.integers(begin, rows))
    part = values_of(field, leaf, rows, (begin, end))
    assert part is not None
    part.validate(full=True)
    plain = part.dictionary_decode() if pa.types.is_dictionary(part.type) else part
    assert plain.equals(repeated.slice(begin, end - begin))


def test_columns_are_read_together() -> None:
    """Columns of any form, of several bodies, beside one that pyarrow must decode."""
    count = 3_000
    arrays = {
        "texts": pa.array([None if n % 11 == 0 else f"line {n}" for n in range(count)]),
        "coded texts": pa.array([None if n % 7 == 0 else f"value {n % 900}" for n in range(count)]),
        "wide integers": pa.array([n * 10**12 for n in range(count)]),
        "coded integers": pa.array([None if n % 3 == 0 else n % 5 for n in range(count)]),
        "remainders": pa.array([n % 1000 for n in range(count)], pa.int16()),
        "floats": pa.array([n / 7 for n in range(count)]),
    }
    wanted, begin, end = [], 1_234, 2_345
    for case, values in arrays.items():
        field, leaf, rows = _leaf(_written(values, _CASES[case][1], 500, nullable=True))
        body = np.frombuffer(leaf.pages[0], np.uint8)
        heads = page_heads(body)
        middle = heads[len(heads) // 2]
        cut = int(middle[ADDRESS] - body.ctypes.data + middle[PACKED_BYTES])
        leaf = replace(leaf, pages=[part for part in (leaf.pages[0][:cut], leaf.pages[0][cut:]) if part])
        form = form_of(field.type, leaf)
        assert form is not None
        wanted.append(Wanted(field.type, form, leaf, rows, begin, end))
    field, leaf, rows = _leaf(_written(arrays["texts"], "PLAIN", 500, nullable=True))
    form = form_of(field.type, leaf)
    assert form is not None
    *found, unusual = columns_of([*wanted, Wanted(field.type, form, leaf, rows, begin, end)])
    assert unusual is None
    for values, part in zip(arrays.values(), found, strict=True):
        assert part is not None
        part.validate(full=True)
        plain = part.dictionary_decode() if pa.types.is_dictionary(part.type) else part
        assert plain.equals(values.slice(begin, end - begin))


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("case", _CASES)
def test_damaged_bytes_are_an_error_or_do_no_harm(case: str, *, checksums: bool) -> None:
    kind, encoding, _ = _CASES[case]
    random = np.random.default_rng(5)
    numbers = random.integers(0, 500, 3_000)
    values = pa.array([f"value {n}" if pa.types.is_string(kind) else None for n in numbers], pa.string())
    if not pa.types.is_string(kind):
        values = pa.array(numbers).cast(kind)
    codec = "zstd" if checksums else "none"
    body = _written(values, encoding, 2_000, nullable=True, codec=codec, checksums=checksums)
    field, leaf, rows = _leaf(body)
    errors = 0
    for _ in range(120):
        pages, dictionary = bytearray(leaf.pages[0]), bytearray(leaf.dictionary)
        hit = dictionary if dictionary and random.random() < 0.3 else pages
        hit[random.integers(len(hit))] ^= 1 << int(random.integers(8))
        cut = len(pages) if random.random() < 0.9 else int(random.integers(len(pages)))
        broken = LeafBytes(leaf.chunk, bytes(dictionary), [bytes(pages[:cut])], leaf.is_flat, leaf.is_optional)
        try:
            found = values_of(field, broken, rows)
        except ValueError:
            errors += 1
            continue
        if found is not None and checksums:
            found.validate(full=True)
    assert errors > (80 if checksums else 0)


def _number(value: int) -> bytes:
    """A signed number as Thrift writes it."""
    left, found = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


@pytest.mark.parametrize("field", [2, 3, 5])
@pytest.mark.parametrize("size", [-1, 1 << 31, (1 << 62) - 1])
def test_impossible_sizes_are_refused(field: int, size: int) -> None:
    """The sums of a few such numbers would be small again."""
    sizes = {number: size if number == field else 0 for number in (2, 3, 5)}
    # Kind and two sizes, then the head of a data page with its number of values.
    head = b"".join(b"\x15" + _number(each) for each in (0, sizes[2], sizes[3]))
    head += b"\x2c\x15" + _number(sizes[5]) + b"\x00\x00"
    with pytest.raises(ValueError, match="impossible size"):
        page_heads(np.frombuffer(head, np.uint8))


def test_a_dictionary_with_more_words_than_bytes_is_refused() -> None:
    body = _written(pa.array(["a", "b"] * 40), None, 1 << 20, nullable=True, codec="none", checksums=False)
    field, leaf, rows = _leaf(body)
    # The number of words is a byte of the dictionary's head.
    at = leaf.dictionary.index(b"\x4c\x15\x04") + 2
    broken = leaf.dictionary[:at] + _number(60) + leaf.dictionary[at + 1 :]
    with pytest.raises(ValueError, match="more words"):
        values_of(field, replace(leaf, dictionary=broken), rows)


@pytest.mark.parametrize("codec", ["zstd", "none"])
@pytest.mark.parametrize("nulls", [0, 0.3])
def test_texts_are_tested_page_by_page(codec: str, nulls: float) -> None:
    random = np.random.default_rng(7)
    texts = [
        None if random.random() < nulls else f"line {n} " + "x" * int(n % 90) for n in random.integers(0, 500, 4_000)
    ]
    values = pa.array(texts, pa.string())
    _, leaf, rows = _leaf(_written(values, "DELTA_LENGTH_BYTE_ARRAY", 3_000, nullable=True, codec=codec))
    sizes: list[int] = []

    def test(page: pa.Array) -> np.ndarray:
        sizes.append(len(page))
        page.validate(full=True)
        return _has_line_4(page)

    found = masks_of(leaf, rows, test)
    assert found is not None and len(sizes) > 10
    assert found[0].tolist() == [text is not None and "line 4" in text for text in texts]
    assert (found[1] is None) == (not nulls)
    assert found[1] is None or found[1].tolist() == [text is None for text in texts]


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize("some", [True, False])
def test_texts_of_survivors_are_kept_while_pages_are_tested(passed: bool, some: bool) -> None:
    random = np.random.default_rng(3)
    # Lines get longer, so that what the first page asks for does not suffice.
    texts = [f"line {n} " + "ü" * (at // 40) for at, n in enumerate(random.integers(0, 500, 4_000))]
    _, leaf, rows = _leaf(_written(pa.array(texts), "DELTA_LENGTH_BYTE_ARRAY", 3_000, nullable=True))
    wanted = random.random(rows) < 0.4 if some else np.ones(rows, np.bool_)
    kept = KeptTexts(passed, wanted if some else None)
    found = masks_of(leaf, rows, _has_line_4, kept)
    assert found is not None
    expected = [at for at in range(rows) if wanted[at] and ("line 4" in texts[at]) is passed]
    assert kept.rows.tolist() == expected
    kept.texts().validate(full=True)
    assert kept.texts().to_pylist() == [texts[at] for at in expected]


def test_no_survivors_are_no_texts() -> None:
    _, leaf, rows = _leaf(_written(pa.array(["a", "b"]), "DELTA_LENGTH_BYTE_ARRAY", 3_000, nullable=True))
    kept = KeptTexts(True, None)
    assert masks_of(leaf, rows, _has_line_4, kept) is not None
    assert len(kept.rows) == len(kept.texts()) == 0


def test_more_texts_than_an_array_can_count_are_left_to_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_values, "_MAX_BYTES", 100)
    texts = [f"line 4{n}" for n in range(100)]
    _, leaf, rows = _leaf(_written(pa.array(texts), "DELTA_LENGTH_BYTE_ARRAY", 200, nullable=True))
    assert masks_of(leaf, rows, _has_line_4, KeptTexts(True, None)) is None


def _has_line_4(page: pa.Array) -> np.ndarray:
    return pc.fill_null(pc.match_substring(page, "line 4"), False).to_numpy(zero_copy_only=False)


def test_only_the_beginning_of_the_last_page_is_decompressed() -> None:
    """The end of a page that is not needed may be damaged, where nothing has a checksum."""
    texts = [f"{n:06} " + "".join(map(str, np.random.default_rng(n).integers(0, 9, 60))) for n in range(6_000)]
    values = pa.array(texts)
    body = _written(values, "DELTA_LENGTH_BYTE_ARRAY", 1 << 20, nullable=True, checksums=False)
    field, leaf, rows = _leaf(body)
    damaged = bytearray(leaf.pages[0])
    damaged[-2_000:-1_000] = bytes(1_000)
    leaf = replace(leaf, pages=[bytes(damaged)])
    part = values_of(field, leaf, rows, (100, 900))
    assert part is not None and part.equals(values.slice(100, 800))
    with pytest.raises(ValueError, match="damaged"):
        values_of(field, leaf, rows)


def test_few_rows_get_the_words_that_they_have() -> None:
    random = np.random.default_rng(5)
    values = pa.array([None if n % 7 == 0 else f"value {n}" for n in random.integers(0, 900, 3_000)], pa.string())
    field, leaf, _ = _leaf(_written(values, None, 100, nullable=True))
    body = np.frombuffer(leaf.pages[0], np.uint8)
    heads = page_heads(body)
    rows = int(heads[0, VALUES])
    first = leaf.pages[0][: int(heads[0, ADDRESS] - body.ctypes.data + heads[0, PACKED_BYTES])]
    found = values_of(field, replace(leaf, pages=[first]), rows)
    assert found is not None
    found.validate(full=True)
    assert found.dictionary_decode().equals(values[:rows])
    assert len(found.dictionary) <= rows + 1


def test_what_is_unusual_is_left_to_pyarrow() -> None:
    texts = pa.array(["a", "b"])
    plain = _written(texts, "PLAIN", 1 << 20, nullable=True)
    assert values_of(*_leaf(plain)) is None
    snappy = _written(texts, "DELTA_LENGTH_BYTE_ARRAY", 1 << 20, nullable=True, codec="snappy")
    assert values_of(*_leaf(snappy)) is None
    days = pa.array([datetime.date(2026, 1, 1)])
    assert values_of(*_leaf(_written(days, "PLAIN", 1 << 20, nullable=True))) is None
