"""Choose, from a list of regular expressions, those that occur in a column.

Arrow compiles an expression at every call, which takes up to a millisecond and, for all of our expressions, more than
reading a small object does. So a sample is compared by expressions that are compiled once per process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import re2  # type: ignore[import-untyped]

#: Texts of a column that are compared. They are spread over the column.
SAMPLE = 128


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def matching(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Return whether each text contains a match."""
    search = _compiled(pattern).search
    return [search(text) is not None for text in texts]


def sample_of(texts: pa.Array) -> list[str]:
    """Return up to `SAMPLE` of the texts; all of them where there are no more."""
    if len(texts) > SAMPLE:
        texts = texts.take(pa.array(np.linspace(0, len(texts) - 1, SAMPLE).astype(np.int64)))
    values: list[str] = texts.to_pylist()
    return values


def order_of(patterns: Sequence[str], texts: pa.Array) -> list[int]:
    """Return which patterns to try, in which order: those that a sample shows, and then the others.

    A text belongs to the first pattern that it matches. The others are left out where the sample was all there is.
    """
    sample = sample_of(texts)
    seen = []
    for number, pattern in enumerate(patterns):
        hits = matching(pattern, sample)
        if any(hits):
            seen.append(number)
            sample = [text for text, hit in zip(sample, hits, strict=True) if not hit]
            if not sample:
                break
    if len(texts) <= SAMPLE:
        return seen
    return seen + [number for number in range(len(patterns)) if number not in seen]
