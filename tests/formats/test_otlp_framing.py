from __future__ import annotations

import pytest

from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp import framing
from lakerunner.formats.otlp.decode import read_protobuf
from lakerunner.model.signals import LOGS
from tests.formats.otlp_samples import log_batches

MESSAGES = [batch.SerializeToString() for batch in log_batches(60, per_batch=20)]


def varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


FRAMED = {
    "bare": b"".join(MESSAGES),
    "varint": b"".join(varint(len(message)) + message for message in MESSAGES),
    "four bytes": b"".join(len(message).to_bytes(4, "big") + message for message in MESSAGES),
}


@pytest.mark.parametrize("framing_name", sorted(FRAMED))
def test_every_framing_gives_the_same_rows(framing_name):
    tables, tally = read_protobuf(FRAMED[framing_name], LOGS, Limits(), Options())
    assert tables[""].num_rows == 60
    assert tally == Tally()


def test_a_bare_message_has_one_reading():
    assert framing.readings(MESSAGES[0]) == [[MESSAGES[0]]]


def test_ten_byte_messages_can_be_read_two_ways_and_the_one_with_rows_is_taken():
    # Ten is the tag of field 1: every length prefix looks like a field of a bare message.
    message = b"\x0a\x08\x12\x06\x12\x04\x1a\x02hi"
    data = (varint(len(message)) + message) * 2
    assert framing.readings(data) == [[data], [message, message]]
    tables, _ = read_protobuf(data, LOGS, Limits(), Options(fallback_time_ns=5))
    assert tables[""].column("severity").to_pylist() == ["hi", "hi"]


@pytest.mark.parametrize("data", [b"", b"hello world", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05ab", b"\xff" * 20])
def test_other_bytes_have_no_reading(data):
    assert framing.readings(data) == []
