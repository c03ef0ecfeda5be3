"""Render attribute lists as JSON objects. Parts are rendered once per distinct value and then joined."""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.otlp.anyvalue import Kind, Nested, Pairs
from lakerunner.formats.otlp.nesting import counts
from lakerunner.formats.typed_json import BYTES_KEY, DOUBLE_KEY


def objects(lists: pa.ListArray, limits: Limits, tally: Tally, nested: Nested = Nested.JSON) -> pa.Array:
    """Return `{"key":value,...}` for each list; null for an empty one."""
    if not len(lists) or not len(lists.flatten()):
        return pa.nulls(len(lists), pa.string())
    # No cap: dropping pairs here would shift every list that follows.
    pairs = Pairs.of(lists, limits, tally, cap=1 << 31, nested=nested)
    keys = _quoted(pa.array(pairs.keys, pa.string())).take(pa.array(pairs.codes))
    members = pc.binary_join_element_wise(keys, _values(pairs, is_typed=nested is Nested.TYPED), ":")
    sizes = counts(lists)
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, members), ",")
    braced = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(pa.array(sizes > 0), braced, pa.scalar(None, pa.string()))


def _values(pairs: Pairs, *, is_typed: bool) -> pa.Array:
    parts = [_json(kind, array, is_typed=is_typed) for kind, array in pairs.values.arrays.items()]
    return pc.coalesce(*parts, pa.scalar("null"))


def _json(kind: Kind, array: pa.Array, *, is_typed: bool) -> pa.Array:
    if kind in (Kind.STRING, Kind.BYTES):
        encoded = array.dictionary_encode()
        quoted = _quoted(encoded.dictionary)
        if kind == Kind.BYTES and is_typed:
            quoted = pc.binary_join_element_wise(f'{{"{BYTES_KEY}":', quoted, "}", "")
        return quoted.take(encoded.indices)
    if kind == Kind.DOUBLE:
        # 1.0 is written as 1.0, as in nested values, which orjson renders.
        text = pc.replace_substring_regex(pc.cast(array, pa.string()), r"^(-?\d+)$", r"\1.0")
        named = pc.if_else(pc.is_nan(array), "NaN", pc.if_else(pc.greater(array, 0), "+Inf", "-Inf"))
        odd = pc.binary_join_element_wise('"', named, '"', "")
        if is_typed:
            odd = pc.binary_join_element_wise(f'{{"{DOUBLE_KEY}":', odd, "}", "")
        return pc.if_else(pc.is_finite(array), text, odd)
    return pc.cast(array, pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    return pa.array([orjson.dumps(text).decode() for text in texts.to_pylist()], pa.string())
