"""Log entries as JSON: what the kernels write is what plain Python would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.serve.rendering import streams
from lakerunner.serve.rendering.log_frames import log_frames, places_in_instants
from lakerunner.serve.rendering.streams import streams_json
from tests.serve.log_batches import PLAIN_ENTRIES, PlainEntry, batch_of


def rendered(entries: Sequence[PlainEntry], cut: int, *, categorized: bool, dictionaries: bool = False) -> Any:
    parts = [part for part in (entries[:cut], entries[cut:]) if part]
    batches = [batch_of(part, dictionaries=dictionaries) for part in parts]
    return orjson.loads(b"[%s]" % streams_json(batches, categorized=categorized))


def by_labels(found_streams: Any) -> dict[bytes, list[Any]]:
    found = {orjson.dumps(each["stream"], option=orjson.OPT_SORT_KEYS): each["values"] for each in found_streams}
    assert len(found) == len(found_streams), "a label set has one stream"
    return found


@pytest.fixture(params=[0, 100], ids=["in bulk", "one by one"], autouse=True)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few entries are written in another way than many."""
    monkeypatch.setattr(streams, "_FEW", request.param)


@given(PLAIN_ENTRIES, st.integers(0, 20), st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_streams_are_grouped_by_all_labels(entries: list[PlainEntry], cut: int, dictionaries: bool) -> None:
    expected: dict[bytes, list[Any]] = {}
    for each in entries:
        key = orjson.dumps(each.labels, option=orjson.OPT_SORT_KEYS)
        expected.setdefault(key, []).append([str(each.time_ns), each.line])
    assert by_labels(rendered(entries, cut, categorized=False, dictionaries=dictionaries)) == expected


@given(PLAIN_ENTRIES, st.integers(0, 20), st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_categorized_streams_have_the_labels_of_the_stream(
    entries: list[PlainEntry], cut: int, dictionaries: bool
) -> None:
    expected: dict[bytes, list[Any]] = {}
    for each in entries:
        third = {"structuredMetadata": each.metadata, "parsed": each.parsed}
        value = [str(each.time_ns), each.line, {name: labels for name, labels in third.items() if labels}]
        expected.setdefault(orjson.dumps(each.stream, option=orjson.OPT_SORT_KEYS), []).append(value)
    assert by_labels(rendered(entries, cut, categorized=True, dictionaries=dictionaries)) == expected


@pytest.mark.parametrize("line", ["", "\x00\x1f\x7f", '"\\/', "\n\r\t\b\f", "漢字 \U0001f600 \u2028", "x" * 100_000])
def test_lines_survive(line: str) -> None:
    ((stream,),) = [rendered([PlainEntry(1, line, {"a": "b"})], 0, categorized=False)]
    assert stream == {"stream": {"a": "b"}, "values": [["1", line]]}


@given(PLAIN_ENTRIES)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_frames_have_one_entry_each(entries: list[PlainEntry]) -> None:
    if not entries:
        return
    batch = batch_of(entries)
    places = np.arange(1, len(entries) + 1)
    frames = log_frames(batch, b"log_x_", places, 7, None).decode().split("\n\n")
    assert frames.pop() == ""
    for number, (frame, entry) in enumerate(zip(frames, entries, strict=True), 1):
        event_id, data = frame.split("\n")
        assert event_id == f"id: log_x_{entry.time_ns}_{number}_{7 + number}"
        assert orjson.loads(data.removeprefix("data: ")) == {
            "type": "result",
            "data": {
                "timestamp": entry.time_ns // 1_000_000,
                "timestampNs": str(entry.time_ns),
                "message": entry.line,
                "tags": entry.labels,
            },
        }


def test_frames_show_chosen_labels() -> None:
    batch = batch_of([PlainEntry(1, "x", {"a": "1"}, {"b": "2"}, {"c": "3"})])
    frame = log_frames(batch, b"", np.array([1]), 0, ("c", "a", "absent"))
    assert b'"tags":{"c":"3","a":"1"}' in frame


def test_places_go_on_across_batches() -> None:
    assert places_in_instants(np.array([5, 5, 4, 3, 3]), None, 0).tolist() == [1, 2, 1, 1, 2]
    assert places_in_instants(np.array([5, 5, 4]), 5, 2).tolist() == [3, 4, 1]
    assert places_in_instants(np.array([], np.int64), 5, 2).tolist() == []
