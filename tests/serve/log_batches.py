"""Batches of log entries as a log query answers them, and the same entries in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
from hypothesis import strategies as st


@dataclass(frozen=True)
class PlainEntry:
    time_ns: int
    line: str
    stream: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    parsed: dict[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        return {**self.stream, **self.metadata, **self.parsed}


def batch_of(entries: Sequence[PlainEntry], *, dictionaries: bool = False) -> pa.RecordBatch:
    def labels(name: str) -> pa.Array:
        texts = [orjson.dumps(getattr(each, name), option=orjson.OPT_SORT_KEYS).decode() for each in entries]
        array = pa.array(texts, pa.string())
        return array.dictionary_encode() if dictionaries else array

    return pa.record_batch(
        {
            "timestamp": pa.array([each.time_ns for each in entries], pa.timestamp("ns", "UTC")),
            "line": pa.array([each.line for each in entries], pa.string()),
            **{name: labels(name) for name in ("stream", "metadata", "parsed")},
        }
    )


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


def _labels(prefix: str) -> st.SearchStrategy[dict[str, str]]:
    # A name is in one category only.
    return st.dictionaries(_TEXTS.map(lambda name: prefix + name), _TEXTS, max_size=2)


PLAIN_ENTRIES = st.lists(
    st.builds(
        PlainEntry,
        st.integers(-(10**18), 2 * 10**18),
        _TEXTS,
        st.sampled_from([{}, {"s": "1"}, {"s": '"\n\\', "é": "\x00"}]),
        _labels("m"),
        _labels("p"),
    ),
    max_size=20,
)
