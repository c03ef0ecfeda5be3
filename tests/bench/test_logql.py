"""The bench of LogQL can be believed: both servers get the same records, and answers that differ are noticed."""

from __future__ import annotations

import json
from typing import Any

from bench.logql.answers import difference
from bench.logql.records import ABSENT, NEEDLE, OBJECT_ROWS, RANGE_S, START_NS, objects
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from lakerunner.model.time import NS_PER_S


def test_exactly_one_record_has_the_needle() -> None:
    records = [
        record
        for body in objects(3 * OBJECT_ROWS)
        for resource in LogsData.FromString(body).resource_logs
        for record in resource.scope_logs[0].log_records
    ]
    assert len(records) == 3 * OBJECT_ROWS
    assert sum(NEEDLE in record.body.string_value for record in records) == 1
    assert not any(ABSENT in record.body.string_value for record in records)
    assert all(START_NS <= record.time_unix_nano < START_NS + RANGE_S * NS_PER_S for record in records)


def test_entries_are_compared_as_a_set() -> None:
    one = [{"stream": {"a": "1"}, "values": [["2", "x"], ["1", "y"]]}]
    split = [{"stream": {"a": "1"}, "values": [["1", "y"]]}, {"stream": {"a": "1"}, "values": [["2", "x"]]}]
    other = [{"stream": {"a": "1"}, "values": [["2", "x"], ["1", "z"]]}]
    assert not difference(_answer("streams", one), _answer("streams", split))
    assert "1 missing, 1 extra" in difference(_answer("streams", other), _answer("streams", one))


def test_values_are_compared_with_a_tolerance() -> None:
    def vector(value: str, label: str = "1") -> bytes:
        return _answer("vector", [{"metric": {"a": label}, "value": [1.0, value]}])

    assert not difference(vector("0.30000000000000004"), vector("0.3"))
    assert difference(vector("0.31"), vector("0.3"))
    assert difference(vector("1", "2"), vector("1"))
    assert not difference(vector("1", "2"), vector("1"), any_of_equals=True)


def _answer(kind: str, result: list[Any]) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()
