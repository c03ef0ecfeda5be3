"""Take the structured data of RFC 5424 apart: `[id key="value" …][id …]`, one parameter of all lines at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.text.logfmt import Pairs, grouped, unescaped

_PARAMETER = r'(?s)^(?:\]?\[(?P<id>[^\s\]="]+))?\s*(?P<key>[^\s\]="\[]+)="(?P<value>(?:[^"\\]|\\.)*)"(?P<rest>.*)$'
_MOST_PARAMETERS = 100


def structured_pairs(texts: pa.Array) -> Pairs:
    """Return the parameters as (key, rows, values). A key is `id.key`."""
    pairs: Pairs = []
    rows = np.arange(len(texts))
    ids = pa.array([""] * len(texts), pa.string())
    for _ in range(_MOST_PARAMETERS):
        # An element without parameters is its id alone.
        texts = pc.replace_substring_regex(texts, r'^\]?(?:\[[^\s\]="]+\])+', "")
        parts = pc.extract_regex(texts, _PARAMETER)
        hit = parts.is_valid()
        rows, ids = rows[hit.to_numpy(zero_copy_only=False)], ids.filter(hit)
        parts = parts.filter(hit)
        if not len(rows):
            break
        ids = pc.if_else(pc.equal(parts.field("id"), ""), ids, parts.field("id"))
        keys = pc.binary_join_element_wise(ids, parts.field("key"), ".")
        pairs += grouped(keys, rows, unescaped(parts.field("value")))
        texts = parts.field("rest")
    return pairs
