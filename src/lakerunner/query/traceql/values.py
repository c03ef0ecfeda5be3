"""Columns of TraceQL values: each value has a type of its own, and all work is done on whole columns.

Texts are codes into a list of distinct ones, so that they are compared once per distinct text. Arrays are JSON texts,
whose elements are found once per distinct array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.traceql import ast

NIL, STRING, INT, FLOAT, BOOL, DURATION, STATUS, KIND, ARRAY = range(9)
TYPE_CODES = {
    ast.NIL: NIL,
    ast.STRING: STRING,
    ast.INT: INT,
    ast.FLOAT: FLOAT,
    ast.BOOL: BOOL,
    ast.DURATION: DURATION,
    ast.STATUS: STATUS,
    ast.KIND: KIND,
}
Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]
Texts = npt.NDArray[np.object_]
_NO_TEXTS: Texts = np.array([], dtype=object)


@dataclass(frozen=True, slots=True)
class Values:
    """A column. Literals have one element, which stands for every row."""

    kind: Codes
    #: Numbers as doubles; true as 1; statuses and kinds as their places in `ast.STATUSES` and `ast.KINDS`.
    number: Floats
    #: Whole numbers and durations exactly.
    whole: Ints
    #: Places in `texts`, of texts and arrays; 0 elsewhere.
    code: Ints
    texts: Texts = field(default_factory=lambda: _NO_TEXTS)

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def nil(cls, size: int) -> Values:
        return cls(np.zeros(size, np.int8), np.zeros(size), np.zeros(size, np.int64), np.zeros(size, np.int64))

    @classmethod
    def of_literal(cls, literal: ast.Literal) -> Values:
        code = TYPE_CODES[literal.type]
        made = cls.nil(1)
        made.kind[0] = code
        if code == STRING:
            return cls(made.kind, made.number, made.whole, made.code, np.array([literal.value], dtype=object))
        if code == STATUS:
            made.number[0] = ast.STATUSES.index(str(literal.value))
        elif code == KIND:
            made.number[0] = ast.KINDS.index(str(literal.value))
        elif isinstance(literal.value, int | float):
            made.number[0] = literal.value
            made.whole[0] = int(literal.value) if code in (INT, DURATION, BOOL) else 0
        return made

    @classmethod
    def numbers(cls, kind: int, numbers: npt.NDArray[Any], present: Mask | None = None) -> Values:
        size = len(numbers)
        kinds = np.full(size, kind, np.int8)
        if present is not None:
            kinds[~present] = NIL
        whole = numbers.astype(np.int64) if kind in (INT, DURATION) else np.zeros(size, np.int64)
        return cls(kinds, numbers.astype(np.float64), whole, np.zeros(size, np.int64))

    @classmethod
    def of_texts(cls, array: pa.Array | pa.ChunkedArray, *, empty_is_nil: bool = False) -> Values:
        """Texts of an Arrow column; nil where it is null."""
        if isinstance(array, pa.ChunkedArray):
            array = array.unify_dictionaries().combine_chunks() if array.num_chunks else pa.array([], pa.string())
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        valid = encoded.is_valid().to_numpy(zero_copy_only=False)
        code = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        texts = np.array(encoded.dictionary.to_pylist(), dtype=object)
        kinds = np.where(valid, STRING, NIL).astype(np.int8)
        if empty_is_nil and len(texts):
            kinds[(texts == "")[code] & valid] = NIL
        size = len(kinds)
        return cls(kinds, np.zeros(size), np.zeros(size, np.int64), code, texts)

    def take(self, rows: Ints) -> Values:
        return Values(self.kind[rows], self.number[rows], self.whole[rows], self.code[rows], self.texts)

    def only(self, keep: Mask) -> Values:
        """Nil elsewhere."""
        kinds = np.where(keep, self.kind, NIL).astype(np.int8)
        return Values(kinds, self.number, self.whole, self.code, self.texts)

    def spread(self, size: int) -> Values:
        return self if len(self) == size else self.take(np.zeros(size, np.int64))

    def or_else(self, other: Values) -> Values:
        """Where this is nil, the other one."""
        missing = self.kind == NIL
        texts = np.concatenate([self.texts, other.texts])
        return Values(
            np.where(missing, other.kind, self.kind).astype(np.int8),
            np.where(missing, other.number, self.number),
            np.where(missing, other.whole, self.whole),
            np.where(missing, np.where(other.has_text, other.code + len(self.texts), 0), self.code),
            texts,
        )

    @property
    def is_number(self) -> Mask:
        found: Mask = (self.kind == INT) | (self.kind == FLOAT) | (self.kind == DURATION)
        return found

    @property
    def has_text(self) -> Mask:
        found: Mask = (self.kind == STRING) | (self.kind == ARRAY)
        return found

    @property
    def is_true(self) -> Mask:
        true: Mask = (self.kind == BOOL) & (self.number != 0)
        return true

    def elements(self) -> tuple[Ints, Values]:
        """The elements of arrays, and the row of each."""
        rows = np.flatnonzero(self.kind == ARRAY)
        used, inverse = np.unique(self.code[rows], return_inverse=True)
        parsed = [_elements(self.texts[code]) for code in used.tolist()]
        counts = np.array([len(each) for each in parsed], np.int64)
        starts = np.concatenate(([0], np.cumsum(counts)))[:-1].astype(np.int64)
        flat = from_python([each for one in parsed for each in one])
        per_row = counts[inverse] if len(rows) else np.zeros(0, np.int64)
        first = starts[inverse] if len(rows) else np.zeros(0, np.int64)
        total = int(per_row.sum())
        ends = np.cumsum(per_row)
        at = np.arange(total) + np.repeat(first - (ends - per_row), per_row)
        return np.repeat(rows, per_row), flat.take(at) if len(flat) != 1 else flat.spread(total)

    def groups(self) -> tuple[Ints, Ints]:
        """A number for every distinct value, and the row in which each is found first."""
        if len(self) and (self.kind == STRING).all():
            return _numbered(_canonical_codes(self), len(self.texts))
        canonical = _canonical_codes(self)
        bits = np.where(np.isin(self.kind, (INT, DURATION)), self.whole, self.number.view(np.int64))
        keyed = np.where(np.isin(self.kind, (STRING, ARRAY)), canonical, bits)
        keyed[self.kind == NIL] = 0
        if len(self) and (self.kind == self.kind[0]).all():
            _, first, inverse = np.unique(keyed, return_index=True, return_inverse=True)
            return inverse.astype(np.int64), first.astype(np.int64)
        pairs = np.empty(len(self), dtype=[("kind", np.int8), ("value", np.int64)])
        pairs["kind"], pairs["value"] = self.kind, keyed
        _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        return inverse.astype(np.int64), first.astype(np.int64)

    def plain(self, row: int) -> tuple[int, Any]:
        """One value as Python has it, with its type. An array of one element is shown as that element."""
        kind = int(self.kind[row])
        if kind == ARRAY and len(items := _elements(self.texts[self.code[row]])) == 1:
            return from_python(items).plain(0)
        if kind in (STRING, ARRAY):
            return kind, self.texts[self.code[row]]
        if kind in (INT, DURATION):
            return kind, int(self.whole[row])
        if kind == BOOL:
            return kind, bool(self.number[row])
        if kind == STATUS:
            return kind, ast.STATUSES[int(self.number[row])]
        if kind == KIND:
            return kind, ast.KINDS[int(self.number[row])]
        return kind, None if kind == NIL else float(self.number[row])


def concat(parts: Sequence[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Values.nil(0)
    offsets = np.cumsum([0, *(len(part.texts) for part in parts[:-1])])
    return Values(
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.number for part in parts]),
        np.concatenate([part.whole for part in parts]),
        np.concatenate(
            [
                np.where(part.has_text, part.code + offset, 0)
                for part, offset in zip(parts, offsets.tolist(), strict=True)
            ]
        ),
        np.concatenate([part.texts for part in parts]),
    )


def from_python(items: Sequence[Any]) -> Values:
    """A column of Python values, as JSON has them. Lists of one type are arrays; other lists and objects are nil."""
    size = len(items)
    made = Values.nil(size)
    texts: list[str] = []
    for row, item in enumerate(items):
        match item:
            case bool():
                made.kind[row], made.number[row] = BOOL, item
            case int() if -(1 << 63) <= item < 1 << 63:
                made.kind[row], made.number[row], made.whole[row] = INT, item, item
            case float():
                made.kind[row], made.number[row] = FLOAT, item
            case {"$double": str(text)}:
                made.kind[row], made.number[row] = FLOAT, float(text)
            case str():
                made.kind[row], made.code[row] = STRING, len(texts)
                texts.append(item)
            case list() if not item or _is_plain_list(item):
                made.kind[row], made.code[row] = ARRAY, len(texts)
                texts.append(orjson.dumps(item).decode())
    return Values(made.kind, made.number, made.whole, made.code, np.array(texts, dtype=object))


def _is_plain_list(items: list[Any]) -> bool:
    types = {type(item) for item in items}
    return len(types) == 1 and types <= {str, int, float, bool}


def _elements(text: str) -> list[Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return []
    return found if isinstance(found, list) and _is_plain_list(found) else []


def _canonical_codes(values: Values) -> Ints:
    """Codes that are equal where the texts are."""
    if not len(values.texts):
        return values.code
    first: dict[str, int] = {}
    codes = np.array([first.setdefault(text, len(first)) for text in values.texts], np.int64)
    # The codes of other values mean nothing.
    return codes[np.where(np.isin(values.kind, (STRING, ARRAY)), values.code, 0)]


def _numbered(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """Codes without those that are not used, and the row in which each is found first."""
    first = np.full(size, -1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    used = first >= 0
    return (np.cumsum(used) - 1)[codes], first[used]


def per_text(values: Values, judge: Callable[[Texts], Mask]) -> Mask:
    """For every row, what is judged of its text; False where it has none."""
    is_text = values.kind == STRING
    if not len(values.texts):
        return np.zeros(len(values), np.bool_)
    found: Mask = is_text & judge(values.texts)[values.code]
    return found
