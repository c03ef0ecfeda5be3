"""Render attribute lists as JSON objects. Parts are rendered once per distinct value and then joined."""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.otlp.anyvalue import Kind, Pairs
from lakerunner.formats.otlp.nesting import counts


def objects(lists: pa.ListArray, limits: Limits, tally: Tally) -> pa.Array:
    """Return `{"key":value,...}` for each list; null for an empty one."""
    if not len(lists) or not len(lists.flatten()):
        return pa.nulls(len(lists), pa.string())
    # No cap: dropping pairs here would shift every list that follows.
    pairs = Pairs.of(lists, limits, tally, cap=1 << 31)
    keys = _quoted(pa.array(pairs.keys, pa.string())).take(pa.array(pairs.codes))
    members = pc.binary_join_element_wise(keys, _values(pairs), ":")
    sizes = counts(lists)
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, members), ",")
    braced = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(pa.array(sizes > 0), braced, pa.scalar(None, pa.string()))


def _values(pairs: Pairs) -> pa.Array:
    parts = [_json(kind, array) for kind, array in pairs.values.arrays.items()]
    return pc.coalesce(*parts, pa.scalar("null"))


def _json(kind: Kind, array: pa.Array) -> pa.Array:
    if kind in (Kind.STRING, Kind.BYTES):
        encoded = array.dictionary_encode()
        return _quoted(encoded.dictionary).take(encoded.indices)
    if kind == Kind.DOUBLE:
        # 1.0 is written as 1.0, as in nested values, which orjson renders.
        text = pc.replace_substring_regex(pc.cast(array, pa.string()), r"^(-?\d+)$", r"\1.0")
        named = pc.if_else(pc.is_nan(array), "NaN", pc.if_else(pc.greater(array, 0), "+Inf", "-Inf"))
        return pc.if_else(pc.is_finite(array), text, pc.binary_join_element_wise('"', named, '"', ""))
    return pc.cast(array, pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    return pa.array([orjson.dumps(text).decode() for text in texts.to_pylist()], pa.string())
