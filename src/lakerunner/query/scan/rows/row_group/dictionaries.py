"""Gives repeated texts a dictionary before they are kept in memory, so that later scans work once per distinct value.

Ingest writes no dictionary if values rarely repeat among neighbours, like the ids of 20,000 users.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

#: Fewer values are not worth it.
_LEAST_ROWS = 4_096
#: Values that are looked at first, and the share of distinct ones among them above which most are distinct.
_SAMPLE_ROWS, _DISTINCT_SHARE = 4_096, 0.95
#: Above this share of distinct values, a dictionary takes more memory than it saves.
_MAX_SHARE = 0.5


def with_dictionary(array: pa.Array) -> pa.Array:
    """The texts with a dictionary if they repeat; other arrays unchanged."""
    if not pa.types.is_string(array.type) or len(array) < _LEAST_ROWS:
        return array
    sample = array.slice(0, _SAMPLE_ROWS)
    if pc.count_distinct(sample).as_py() > _DISTINCT_SHARE * len(sample):
        return array
    encoded = array.dictionary_encode()
    return encoded if len(encoded.dictionary) <= _MAX_SHARE * len(array) else array
