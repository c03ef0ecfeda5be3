"""The answer of a log query as batches: time, line, and the labels of each category as one JSON object.

The keys of an object are sorted, so that entries with equal labels have equal texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Category, Entries, Ints, encoded, plain
from lakerunner.query.logql.object_kernel import objects

#: Characters that JSON writes in another way.
_ESCAPED = r'[\x00-\x1f"\\]'
#: Up to so many entries are written by a kernel of ours: for 100 of them, the calls of Arrow's take five times as long.
_FEW = 512
#: More combinations of codes than this do not fit an integer.
_MAX_COMBINATIONS = 1 << 62

TIMESTAMP, LINE, STREAM, METADATA, PARSED = "timestamp", "line", "stream", "metadata", "parsed"
SCHEMA = pa.schema(
    [
        pa.field(TIMESTAMP, pa.timestamp("ns", "UTC")),
        pa.field(LINE, pa.string()),
        # Few distinct streams are repeated many times.
        pa.field(STREAM, pa.dictionary(pa.int32(), pa.string())),
        pa.field(METADATA, pa.string()),
        pa.field(PARSED, pa.string()),
    ]
)


def answer_batch(entries: Entries) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(entries.times_ns).cast(SCHEMA.field(TIMESTAMP).type),
            entries.lines,
            _repeated(entries, Category.STREAM),
            _objects(entries, Category.METADATA),
            _objects(entries, Category.PARSED),
        ],
        schema=SCHEMA,
    )


def _repeated(entries: Entries, category: Category) -> pa.DictionaryArray:
    """The objects of a category with few distinct ones: each is written once."""
    if len(entries) <= _FEW:
        return _objects(entries, category).dictionary_encode()
    columns = [encoded(values) for (each, _), values in entries.columns.items() if each is category]
    firsts, codes = _combinations(columns, len(entries))
    distinct = _objects(entries.taken(firsts), category)
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), distinct)


def _combinations(columns: Sequence[pa.DictionaryArray], count: int) -> tuple[Ints, Ints]:
    """The first entry of every distinct combination of values, and for every entry the number of its combination."""
    combined = np.zeros(count, np.int64)
    combinations = 1
    for column in columns:
        size = len(column.dictionary) + 1
        if combinations > _MAX_COMBINATIONS // size:
            _, combined = np.unique(combined, return_inverse=True)
            combinations = int(combined.max(initial=0)) + 1
        combined = combined * size + column.indices.fill_null(size - 1).to_numpy()
        combinations *= size
    _, firsts, codes = np.unique(combined, return_index=True, return_inverse=True)
    return firsts, codes


def _objects(entries: Entries, category: Category) -> pa.StringArray:
    """For every entry, its labels of the category as a JSON object."""
    fields = [(name, entries.columns[category, name]) for each, name in sorted(entries.columns) if each is category]
    if not fields or not len(entries):
        return pa.array(["{}"] * len(entries), pa.string())
    if len(entries) <= _FEW:
        return objects(tuple(name for name, _ in fields), [plain(values) for _, values in fields], empty=True)
    members = [_members(name, values) for name, values in fields]
    joined = pc.binary_join_element_wise(*members, "", null_handling="replace", null_replacement="")
    # Every member begins with a comma.
    return pc.binary_join_element_wise("{", pc.binary_replace_slice(joined, 0, 1, ""), "}", "")


def _members(name: str, values: pa.Array) -> pa.StringArray:
    """`,"name":"value"` for every value; null where there is none."""
    if pa.types.is_dictionary(values.type) and len(values.dictionary) < len(values):
        return _members(name, values.dictionary).take(values.indices)
    quoted = _quoted(plain(values))
    return pc.binary_join_element_wise(f",{orjson.dumps(name).decode()}:", quoted, "")


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    """The texts as JSON strings."""
    special = pc.match_substring_regex(texts, _ESCAPED)
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    if not pc.any(special).as_py():
        return quoted
    distinct = texts.filter(special).dictionary_encode()
    escaped = pa.array([orjson.dumps(text).decode() for text in distinct.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(quoted, special, escaped.take(distinct.indices))
