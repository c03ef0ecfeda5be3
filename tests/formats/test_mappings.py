from __future__ import annotations

import pytest

from lakerunner.formats.detect import Format
from lakerunner.formats.mappings import parse_mappings
from lakerunner.formats.options import Options, options_of
from lakerunner.formats.read import read_object
from lakerunner.model.errors import BadInput
from lakerunner.model.signals import LOGS, TRACES
from lakerunner.runtime.settings import FormatsSettings

MAPPING = """
    logs-raw/            message=what
    logs-raw/old/        time=when message=what,text level=prio "service=the system"   # the old shop
    s3://other/logs-raw/old/deep/  format=text
"""


def options(bucket: str, key: str) -> Options:
    return options_of(FormatsSettings(mapping=MAPPING)).for_object(bucket, key, 5)


def test_the_longest_prefix_wins():
    assert options("s3://b", "x/a.json").fields == {}
    assert options("s3://b", "logs-raw/a.json").fields == {"message": "what"}
    assert options("s3://b", "logs-raw/old/a.json").fields["timestamp"] == "when"
    assert options("s3://b", "logs-raw/old/deep/a").format is None
    assert options("s3://other", "logs-raw/old/deep/a").format is Format.TEXT
    assert options("s3://b", "logs-raw/a.json").fallback_time_ns == 5


def test_mapped_keys_come_before_the_known_ones():
    data = b'{"When":"2026-11-16T05:00:00Z","time":1,"text":"m","message":"other","prio":"warn","the_system":"cart"}'
    (row,) = read_object(data, LOGS, options=options("s3://b", "logs-raw/old/a.json")).tables[""].to_pylist()
    assert row["timestamp"].isoformat() == "2026-11-16T05:00:00+00:00"
    assert (row["message"], row["severity"], row["service_name"]) == ("m", "warn", "cart")
    assert (row["attr_message"], row["attr_time"]) == ("other", 1)


def test_time_is_the_start_of_a_span():
    data = b'{"when":7,"trace_id":"0af7651916cd43dd8448eb211c80319c","name":"x"}'
    (row,) = read_object(data, TRACES, options=options("s3://b", "logs-raw/old/a.json")).tables[""].to_pylist()
    assert row["start_timestamp"].value == 7_000_000_000


def test_a_mapped_format_is_not_guessed():
    data = b"time,message\n1763200000,hi\n"
    assert read_object(data, LOGS, "a.csv").format == "csv"
    assert read_object(data, LOGS, "a.csv", options=Options(format=Format.TEXT, fallback_time_ns=5)).format == "text"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("logs-raw/", "a prefix and then"),
        ("time=when", "a prefix and then"),
        ("logs-raw/ when", "no NAME=VALUE"),
        ("logs-raw/ colour=red", "no field 'colour'"),
        ("logs-raw/ format=xml", "no format"),
        ('logs-raw/ time="a', "No closing quotation"),
    ],
)
def test_a_mapping_that_cannot_be_read_is_refused(text, reason):
    with pytest.raises(BadInput, match=reason):
        parse_mappings(text)
