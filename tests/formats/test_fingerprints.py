"""Messages of one pattern have one fingerprint."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.formats.fingerprints import MAX_BYTES, fingerprints, pattern_text


def fingerprint(*messages: str | None) -> list[int | None]:
    found: list[int | None] = fingerprints(pa.chunked_array([pa.array(messages, pa.string())])).to_pylist()
    return found


@pytest.mark.parametrize(
    ("pattern", "messages"),
    [
        ("took <_>", ["took 12ms", "took 1.5s", "took -7"]),
        ("user u-<_> from <_>", ["user u-17 from 10.0.0.1:80", "user u-2 from 192.168.4.77"]),
        ("id <_> done", ["id 7d9f0a3e-dead-beef-cafe-0123456789ab done", "id deadbeefcafe done"]),
        ("peer <_>", ["peer 2001:db8:1::beef", "peer 1::1"]),
        ("at <_>", ["at 2026-11-01T10:00:00+00:00", "at 10:00:00.123"]),
        ("say <_> now", ['say "hi" now', 'say "a \\"b\\" c" now', "say 'x y' now"]),
        ("I can't", ["I can't"]),
        ('{"level":<_>,"n":<_>}', ['{"level":"info","n":1}', '{"level":"error","n":20}']),
        ("n=<_> total=<_>", ["n=1 total=110", "n=20 total=3"]),
        ("GET /api/<_>/items/<_> HTTP", ["GET /api/v1/items/17 HTTP", "GET /api/v2/items/abc9 HTTP"]),
        ("", [""]),
    ],
)
def test_what_varies_is_a_hole(pattern: str, messages: list[str]) -> None:
    assert {pattern_text(message) for message in messages} == {pattern}
    assert len(set(fingerprint(*messages))) == 1


def test_different_words_are_different_patterns() -> None:
    assert len(set(fingerprint("cart added", "cart removed", "cart", "added", ""))) == 5


def test_a_null_has_none_and_slices_are_read_where_they_are() -> None:
    one, none, other = fingerprint("a 1", None, "b 2")
    assert none is None and one != other
    sliced = pa.chunked_array([pa.array(["x", "a 1", "b 2"]).slice(1), pa.array(["a 7"])])
    assert fingerprints(sliced).to_pylist() == [one, other, one]


@given(st.lists(st.text(max_size=60), max_size=6))
def test_equal_patterns_and_only_those_have_equal_fingerprints(messages: list[str]) -> None:
    # Holes and the marks that stand for them cannot be told apart in the text of a pattern.
    messages = [message.replace("<_>", "").replace("\0", "") for message in messages]
    patterns = [pattern_text(message) for message in messages]
    found = fingerprint(*messages)
    for one in range(len(messages)):
        for other in range(len(messages)):
            assert (found[one] == found[other]) == (patterns[one] == patterns[other])


def test_a_long_message_is_read_in_part() -> None:
    assert len(set(fingerprint("x" * MAX_BYTES + "a", "x" * MAX_BYTES + "b"))) == 1
