"""Messages survive encoding and decoding, and unreadable ones are refused with a reason."""

from __future__ import annotations

import uuid

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.bus.messages import (
    DeadLetter,
    Message,
    ObjectSeen,
    Redriven,
    SegmentsMade,
    WindowsChanged,
    WorkReady,
    decode,
    encode,
)
from lakerunner.model.errors import BadInput

# JSON has no lone surrogates, and our own text comes from UTF-8.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NATURAL = st.integers(0, 2**63 - 1)
MESSAGES = st.one_of(
    st.builds(ObjectSeen, st.uuids(), st.uuids(), TEXT, TEXT, TEXT, TEXT, TEXT, NATURAL),
    st.builds(WorkReady, st.uuids(), st.uuids(), TEXT, st.sampled_from(["ingest", "compact", "rollup"])),
    st.builds(
        SegmentsMade, st.uuids(), TEXT, TEXT, NATURAL, NATURAL, NATURAL, st.lists(st.uuids(), max_size=5).map(tuple)
    ),
    st.builds(DeadLetter, TEXT, NATURAL, NATURAL, TEXT, TEXT, NATURAL, TEXT, TEXT, TEXT),
    st.builds(Redriven, NATURAL),
    st.builds(WindowsChanged, st.uuids(), st.lists(st.tuples(NATURAL, NATURAL), max_size=5).map(tuple)),
)
WORK = WorkReady(uuid.UUID(int=1), uuid.UUID(int=2), "logs", "ingest")


@given(MESSAGES)
def test_decode_undoes_encode(message: Message) -> None:
    assert decode(type(message), encode(message)) == message


@given(MESSAGES)
def test_fields_of_a_newer_writer_are_passed_over(message: Message) -> None:
    document = {**orjson.loads(encode(message)), "added_later": [1, {"a": None}]}
    assert decode(type(message), orjson.dumps(document)) == message


@given(MESSAGES, st.data())
def test_a_missing_field_is_refused(message: Message, data: st.DataObject) -> None:
    document = orjson.loads(encode(message))
    del document[data.draw(st.sampled_from(sorted(document)))]
    with pytest.raises(BadInput):
        decode(type(message), orjson.dumps(document))


@given(st.binary(max_size=50))
def test_rubbish_is_bad_input_and_nothing_else(payload: bytes) -> None:
    with pytest.raises(BadInput):
        decode(WorkReady, payload)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"v": 2}, "its version is 2"),
        ({"v": "1"}, "its version is '1'"),
        ({"v": True}, "its version is True"),
        ({"item_id": "not an id"}, "item_id"),
        ({"item_id": None}, "item_id"),
        ({"stage": "dance"}, "stage"),
        ({"signal": 7}, "signal"),
    ],
)
def test_a_wrong_value_is_named(change: dict[str, object], reason: str) -> None:
    payload = orjson.dumps({**orjson.loads(encode(WORK)), **change})
    with pytest.raises(BadInput, match=reason):
        decode(WorkReady, payload)


def test_the_json_is_what_the_docs_say() -> None:
    assert orjson.loads(encode(WORK)) == {
        "v": 1,
        "item_id": "00000000-0000-0000-0000-000000000001",
        "org_id": "00000000-0000-0000-0000-000000000002",
        "signal": "logs",
        "stage": "ingest",
    }
