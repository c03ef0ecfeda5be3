"""Random OTLP messages for hypothesis: small, with keys that collide and values of every kind."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tests.formats.otlp_samples import any_value

KEYS = st.sampled_from(["a", "b", "a.b", "a_b", "A.b", "service.name", "名", "x-y", "1z", "name"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LEAVES = st.one_of(
    st.none(),
    TEXT,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.binary(max_size=5),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def key_values(draw: Any) -> list[KeyValue]:
    found = draw(st.lists(st.tuples(KEYS, VALUES, st.booleans()), max_size=5))
    # A pair without a value is not the same on the wire as a pair with an empty one.
    return [KeyValue(key=key) if bare else KeyValue(key=key, value=any_value(value)) for key, value, bare in found]


def maybe_value() -> st.SearchStrategy[AnyValue | None]:
    return st.one_of(st.none(), VALUES.map(any_value))


TIMES = st.one_of(st.just(0), st.integers(1, 2**62), st.integers(2**63, 2**64 - 1))
IDS = st.one_of(
    st.just(b""), st.just(bytes(16)), st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8)
)
COUNTS = st.integers(0, 2**32 - 1)
