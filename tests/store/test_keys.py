"""Keys that we build can be parsed; other keys are refused."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lakerunner.model.errors import BadInput
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS, METRICS, SIGNALS, TRACES
from lakerunner.model.time import NS_PER_HOUR, TimeRange, day_range
from lakerunner.store.keys import (
    CookedKey,
    check_key,
    check_prefix,
    collector_prefix,
    day_prefix,
    is_cooked,
    org_prefix,
    parse_cooked,
    parse_raw,
    raw_prefix,
    segment_keys,
)

ORG = uuid.UUID("12345678-1234-4234-8234-123456789abc")
ID = uuid.UUID("01890000-0000-7000-8000-00000000abcd")

_collectors = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_dates = st.dates().map(lambda day: day.year * 10_000 + day.month * 100 + day.day)


@st.composite
def cooked_keys(draw: st.DrawFn) -> CookedKey:
    signal = draw(st.sampled_from(SIGNALS))
    collector = draw(_collectors)
    assume(collector not in (".", ".."))
    hour, table = draw(st.integers(0, 23)), draw(st.sampled_from(signal.tables))
    return CookedKey(draw(st.uuids()), collector, draw(_dates), signal, hour, draw(st.uuids()), table)


@given(cooked_keys())
def test_what_is_made_is_parsed(key: CookedKey) -> None:
    text = str(key)
    assert parse_cooked(text) == key
    assert is_cooked(text)
    assert text.startswith(day_prefix(key.org_id, key.collector, key.dateint))
    assert text.startswith(collector_prefix(key.org_id, key.collector))
    assert text.startswith(org_prefix(key.org_id))


@given(_collectors, _collectors)
def test_two_collectors_share_no_prefix(one: str, other: str) -> None:
    assume(one != other and not {one, other} & {".", ".."})
    assert not collector_prefix(ORG, one).startswith(collector_prefix(ORG, other))


@given(st.text() | st.from_regex(r"db/[a-f0-9-]+/[^/]+/\d+/(logs|metrics)/\d\d/tbl_.*\.parquet", fullmatch=True))
def test_any_text_is_parsed_to_what_makes_it_or_refused(text: str) -> None:
    try:
        key = parse_cooked(text)
    except BadInput:
        return
    assert str(key) == text


def test_the_layout_is_the_documented_one() -> None:
    key = CookedKey(ORG, "eu/west 1", 20240229, METRICS, 7, ID, METRICS.tables[1])
    assert str(key) == f"db/{ORG}/eu%2Fwest%201/20240229/metrics/07/tbl_{ID}.series.parquet"


def test_a_segment_has_a_key_for_each_table() -> None:
    start_ns = day_range(20240229).start_ns + 7 * NS_PER_HOUR
    segment = Segment(ID, ORG, "c", "metrics", TimeRange(start_ns, start_ns + 1), 1, 1)
    folder = f"db/{ORG}/c/20240229/metrics/07/tbl_{ID}"
    assert segment_keys(segment) == (f"{folder}.parquet", f"{folder}.series.parquet")


@pytest.mark.parametrize("collector", ["", ".", "..", "x" * 256, "é" * 60, "\ud800"])
def test_collectors_that_cannot_be_a_part_are_refused(collector: str) -> None:
    with pytest.raises(BadInput, match="name of a collector"):
        collector_prefix(ORG, collector)


@pytest.mark.parametrize(
    "key",
    [
        f"db/{ORG}/c/20240229/logs/07/tbl_{ID}.series.parquet",
        f"db/{ORG}/c/20240230/logs/07/tbl_{ID}.parquet",
        f"db/{ORG}/c/20240229/logs/24/tbl_{ID}.parquet",
        f"db/{ORG}/c/20240229/logs/7/tbl_{ID}.parquet",
        f"db/{ORG}/c/20240229/spans/07/tbl_{ID}.parquet",
        f"db/{ORG}/c d/20240229/logs/07/tbl_{ID}.parquet",
        f"db/{ORG}/%2e%2e/20240229/logs/07/tbl_{ID}.parquet",
        f"db/{ORG}/%ff/20240229/logs/07/tbl_{ID}.parquet",
        f"db/{str(ORG).upper()}/c/20240229/logs/07/tbl_{ID}.parquet",
        f"db/org/c/20240229/logs/07/tbl_{ID}.parquet",
        f"db/{ORG}/c/20240229/logs/07/tbl_x.parquet",
        f"db/{ORG}/c/20240229/logs/07/x/tbl_{ID}.parquet",
        f"otel-raw/{ORG}/c/20240229/logs/07/tbl_{ID}.parquet",
        f"db/{ORG}/../20240229/logs/07/tbl_{ID}.parquet",
    ],
)
def test_what_we_would_not_write_is_not_ours(key: str) -> None:
    with pytest.raises(BadInput):
        parse_cooked(key)


@pytest.mark.parametrize(
    ("rest", "signal"),
    [
        ("logs/x.json", LOGS),
        ("year=2024/month=01/logs_123.binpb.gz", LOGS),
        ("2024/METRICS-1.json", METRICS),
        ("otlp_traces/metrics.bin", TRACES),
        ("catalogs/mylogs/traces", TRACES),
    ],
)
def test_a_raw_key_tells_whose_it_is(rest: str, signal: object) -> None:
    raw = parse_raw(f"{raw_prefix(ORG)}logs of eu/{rest}")
    assert (raw.org_id, raw.collector, raw.signal) == (ORG, "logs of eu", signal)


@pytest.mark.parametrize(
    "key",
    [
        f"otel-raw/{ORG}/logs/x.json",
        f"otel-raw/{ORG}/c/catalogs/x.json",
        f"otel-raw/{ORG}/logs",
        "otel-raw/nobody/c/logs/x",
        f"other/{ORG}/c/logs/x",
        f"otel-raw/{ORG}/../logs/x",
        f"otel-raw/{ORG}//logs/x",
        f"db/{ORG}/c/20240229/logs/07/tbl_{ID}.parquet",
    ],
)
def test_raw_keys_that_tell_nothing_are_refused(key: str) -> None:
    with pytest.raises(BadInput):
        parse_raw(key)


def test_only_what_is_under_db_is_cooked() -> None:
    assert is_cooked("db/x")
    assert is_cooked("db")
    assert not is_cooked("dbx/y")
    assert not is_cooked("otel-raw/db/x")


@given(st.text())
def test_a_checked_key_is_safe(text: str) -> None:
    try:
        key = check_key(text)
    except BadInput:
        return
    assert key == text
    assert not {"", ".", ".."} & set(key.split("/"))
    assert all(ord(character) >= 0x20 and ord(character) != 0x7F for character in key)
    assert 0 < len(key.encode()) <= 1_024


def test_the_longest_key_is_measured_in_bytes() -> None:
    check_key("é" * 512)
    with pytest.raises(BadInput, match="1024 bytes"):
        check_key("é" * 512 + "x")


def test_a_prefix_ends_with_a_slash() -> None:
    assert (check_prefix(""), check_prefix("a/b"), check_prefix("a/b/")) == ("", "a/b/", "a/b/")
    for bad in ("/", "a//", "../", "/a/"):
        with pytest.raises(BadInput):
            check_prefix(bad)
