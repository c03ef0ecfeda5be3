"""The level of a log record is the one that Loki detects."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from lakerunner.formats.read import read_object
from lakerunner.model.signals import LOGS
from tests.formats.otlp_samples import pairs


def level_of(
    line: str = "",
    attributes: dict[str, Any] | None = None,
    resource: dict[str, Any] | None = None,
    scope: dict[str, Any] | None = None,
    **fields: Any,
) -> str:
    batch = LogsData()
    parent = batch.resource_logs.add()
    parent.resource.attributes.extend(pairs(resource or {}))
    child = parent.scope_logs.add()
    child.scope.attributes.extend(pairs(scope or {}))
    record = child.log_records.add(time_unix_nano=1, attributes=pairs(attributes or {}), **fields)
    record.body.string_value = line
    return str(read_object(batch.SerializeToString(), LOGS).tables[""].column("level")[0].as_py())


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("", "unknown"),
        ("nothing to see", "unknown"),
        ("an error occurred", "error"),
        ("ERROR first, then info", "error"),
        ("info first, then ERROR", "info"),
        ("[WARN] low disk", "warn"),
        ("Level: Warning capital", "warn"),
        ("debug: entering", "debug"),
        ("trace me", "trace"),
        ("fatal!", "fatal"),
        # Words count only between certain characters: no colon before, no dot after.
        ("misc:error", "unknown"),
        ("error.", "unknown"),
        ("information", "unknown"),
        ("terror", "unknown"),
        ("\x1b[31mERROR\x1b[0m", "unknown"),
        # Fields of logfmt: the preferred name wins wherever it stands, whatever its case.
        ("level=ERROR upper", "error"),
        ("severity=critical", "critical"),
        ("lvl=dbg level=info", "info"),
        ("LVL=trc", "trace"),
        ("level=banana but error", "error"),
        ('msg="level=error inside quotes"', "error"),
        ('level="warn" x=1', "warn"),
        ('a"b level=warn', "warn"),
        ("x=a=b info level=fatal", "info"),
        # Fields of JSON: the first one in the document, spelled exactly so, at most one object deep.
        ('{"level":"fatal"}', "fatal"),
        ('{"severity":"WARNING"}', "warn"),
        ('{"severity":"critical","level":"error"}', "critical"),
        ('{"lEvEl":"information"}', "unknown"),
        ('{"log":{"level":"warn"}}', "warn"),
        ('{"a":{"b":{"level":"information"}}}', "unknown"),
        ('{"level":3,"severity":"debug"}', "debug"),
        ('{"x":[{"level":"error"}],"level":"info"}', "info"),
        ('{"msg":"quoted \\" brace }","level":"debug"}', "debug"),
        ('{"level":"odd"} {"level":"error"}', "error"),
        (' {"level" : "inf"} ', "info"),
    ],
)
def test_a_line_names_its_level(line: str, level: str) -> None:
    assert level_of(line) == level


@pytest.mark.parametrize(
    ("number", "level"),
    [
        (1, "trace"),
        (4, "trace"),
        (5, "debug"),
        (9, "info"),
        (13, "warn"),
        (20, "error"),
        (24, "fatal"),
        (25, "unknown"),
    ],
)
def test_a_severity_number_counts_more_than_the_line(number: int, level: str) -> None:
    assert level_of("an error", severity_number=number) == level


def test_a_severity_text_counts_more_than_its_number_and_is_kept_if_it_is_not_known() -> None:
    assert level_of("an error", severity_number=9, severity_text="wrn") == "warn"
    assert level_of(severity_number=9, severity_text="INFO4") == "INFO4"
    assert level_of("an error", severity_text="  ") == "  "


def test_attributes_count_most() -> None:
    assert level_of(severity_text="INFO", attributes={"level": "Error"}) == "error"
    assert level_of(attributes={"lvl": "x", "LEVEL": "fatal"}) == "fatal"
    assert level_of(attributes={"Severity": "Info", "severity": "error"}) == "error"
    assert level_of("an error", attributes={"log.level": "warn", "level": ""}) == "error"
    assert level_of(attributes={"severity_text": "attr"}) == "attr"
    assert level_of(scope={"level": "critical"}, attributes={"level": "warn"}) == "warn"
    assert level_of(resource={"lvl": "INF"}) == "info"
    assert level_of(attributes={"level": 7}) == "7"


def test_a_given_level_is_normalised_unless_it_is_given_twice() -> None:
    assert level_of(attributes={"detected.level": "WARN", "level": "error"}) == "warn"
    assert level_of(attributes={"detected_level": "WARN"}, scope={"detected_level": "Banana"}) == "Banana"
    assert level_of(attributes={"detected_level": "x"}, scope={"detected_level": "WARN"}) == "WARN"
