"""The rows that a rule selects, as columns, and rows grouped by service so that a rule only looks at its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.distinct import buckets_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Raises when the rules have taken too long.
Check = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Coded:
    """Texts by their numbers: `words` has each text once, and the empty one stands for a missing value."""

    codes: Ints
    words: pa.StringArray

    @classmethod
    def of(cls, values: pa.Array | None, size: int) -> Coded:
        """Encode a column of texts, which may have a dictionary and nulls."""
        if values is None:
            return cls(np.zeros(size, np.int64), pa.array([""], pa.string()))
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        words = pc.fill_null(encoded.dictionary.cast(pa.string()), "")
        codes = _whole(encoded.indices.fill_null(len(words)) if encoded.null_count else encoded.indices)
        # A dictionary may have a word twice, and the empty one.
        again = pa.concat_arrays([words, pa.array([""], pa.string())]).dictionary_encode()
        if len(again.dictionary) <= len(words):
            codes = _whole(again.indices)[codes]
        return cls(codes, again.dictionary)

    def taken(self, rows: Ints | slice) -> Coded:
        return Coded(self.codes[rows], self.words)


def distinct_values(values: Coded) -> tuple[Ints, Floats]:
    """The rows that have a value, and the bucket that it has in the sketch of different values."""
    is_there = pc.not_equal(values.words, "").to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(is_there[values.codes])
    return rows, buckets_of(values.words)[values.codes[rows]].astype(np.float64)


def _whole(numbers: pa.Array) -> Ints:
    found: Ints = numbers.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


@dataclass(frozen=True, slots=True)
class Selected:
    """Rows of one rule, and their dimensions."""

    times_ns: Ints
    dimensions: Sequence[Coded]
    #: What is added up, compared or distributed, or buckets of different values; None where rows are counted.
    amounts: Floats | None = None
    #: Times of rows that the rule's stages failed on. They are not among the others.
    failed_ns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    #: Times of rows of logs that have a dimension without a value, which queries tell from a missing one.
    empty_ns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Services:
    """The rows of each service."""

    names: tuple[str, ...]
    #: Rows in the order of services, and where each service begins and ends in them.
    rows: Ints
    bounds: Ints
    #: Whether `rows` are in the order of the batch.
    is_sorted: bool

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch, missing: str) -> Services:
        """Group the rows by their service. A column without a value is not stored."""
        if "service_name" in batch.schema.names:
            return cls.of(batch.column("service_name"), missing)
        return cls.of(pa.nulls(batch.num_rows, pa.string()), missing)

    @classmethod
    def of(cls, column: pa.Array, missing: str) -> Services:
        """Group the rows by a column of names; a null and an empty name count as `missing`."""
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        words = [word or missing for word in encoded.dictionary.to_pylist()]
        names = tuple(dict.fromkeys([*words, missing]))
        number = {name: at for at, name in enumerate(names)}
        of_word = np.array([number[word] for word in words] + [number[missing]], np.int64)
        codes = of_word[encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)]
        is_sorted = bool((codes[1:] >= codes[:-1]).all())
        rows = np.arange(len(codes)) if is_sorted else np.argsort(codes, kind="stable")
        return cls(names, rows, np.searchsorted(codes[rows], np.arange(len(names) + 1)), is_sorted)

    def present(self, accepts: Callable[[str], bool]) -> tuple[int, ...]:
        """The services that have rows and are accepted."""
        sizes = np.diff(self.bounds)
        return tuple(at for at, name in enumerate(self.names) if sizes[at] and accepts(name))

    def rows_of(self, chosen: Sequence[int]) -> Ints:
        """The rows of some services, ascending."""
        if not chosen:
            return np.zeros(0, np.int64)
        found = [self.rows[self.bounds[at] : self.bounds[at + 1]] for at in chosen]
        return found[0] if len(found) == 1 else np.sort(np.concatenate(found))


def rows_of_batch(batch: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
    """These ascending rows of a batch; a view of it where they are neighbours."""
    size = len(rows)
    if size == batch.num_rows:
        return batch
    if size and int(rows[-1]) - int(rows[0]) + 1 == size:
        return batch.slice(int(rows[0]), size)
    return batch.take(pa.array(rows))
