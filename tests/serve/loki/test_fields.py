"""Fields that are found in lines: their types and the values as they are told."""

from __future__ import annotations

import json

import pyarrow as pa

from lakerunner.serve.loki.fields import Field, detect_fields
from lakerunner.serve.rendering.streams import LINE, METADATA, PARSED, STREAM, TIME


def _found(*entries: tuple[str, int, str, dict[str, str]]) -> dict[str, Field]:
    """The fields of entries, each with its service, time, line and metadata."""
    batch = pa.record_batch(
        {
            STREAM: pa.array([json.dumps({"service_name": service}) for service, *_ in entries]),
            TIME: pa.array([time for _, time, *_ in entries], pa.timestamp("ns", "UTC")),
            LINE: pa.array([line for _, _, line, _ in entries]),
            METADATA: pa.array([json.dumps(metadata) for *_, metadata in entries]),
            PARSED: pa.array(["{}"] * len(entries)),
        }
    )
    return {field.name: field for field in detect_fields([batch], lambda: None)}


def test_sizes_that_a_parser_found_are_told_in_one_spelling() -> None:
    found = _found(
        ("a", 1, "size=1.5MiB rest=512 took=3ms", {"bytes": "3KiB"}),
        ("a", 2, "size=1572864B bytes=3KiB", {}),
    )
    assert found["size"].shown == {"1.6MB"} and found["size"].values == {"1.5MiB", "1572864B"}
    assert found["rest"].shown == {"512"} and found["took"].shown == {"3ms"}
    # Metadata is told as it is.
    assert found["bytes"].shown == {"3KiB", "3.1kB"}


def test_the_last_value_tells_the_type() -> None:
    assert _found(("a", 2, "x=1", {}), ("a", 1, "x=word", {}))["x"].kind == "string"
    assert _found(("a", 1, "x=1", {}), ("a", 2, "x=word", {}))["x"].kind == "int"
    # Stream by stream, whether it is metadata or part of the line.
    assert _found(("a", 1, '{"x": 1}', {}), ("b", 1, "", {"x": "word"}))["x"].kind == "string"
    assert _found(("a", 1, "", {"x": "word"}), ("b", 1, '{"x": 1}', {}))["x"].kind == "int"
