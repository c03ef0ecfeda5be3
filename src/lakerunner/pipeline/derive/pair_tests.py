"""Runs tests of materialization rules: rows are read and evaluated as ingest does it, and compared with series."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.formats.read import read_object
from lakerunner.model import distinct
from lakerunner.model.errors import BadInput, LakeError
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, TRACES
from lakerunner.pipeline.derive.rule_set import Evaluation, RuleEvaluation, RuleSet, RuleVersion
from lakerunner.pipeline.repeats import with_repeats
from lakerunner.pipeline.split import parts
from lakerunner.query.syntax.durations import parse_duration_ms
from lakerunner.rules.check import require_valid
from lakerunner.rules.definitions import Materialize
from lakerunner.rules.file import read_rules
from lakerunner.rules.unit_tests.pairs import (
    BUCKET_MS,
    PairFile,
    Row,
    Value,
    difference,
    parse_pairs,
    series_line,
)

#: The start of every test: a whole bucket, and an hour.
_START_MS = 1_767_225_600_000
_KINDS = {"unspecified": 0, "internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUSES = {"unset": 0, "ok": 1, "error": 2}
_KEY = b"k" * 16
_OF_HISTOGRAMS = ("h_count", "h_sum", "h_zero_threshold", "h_positive_spans")


def run_pairs(path: Path, only: re.Pattern[str] | None = None) -> tuple[list[str], int]:
    """The failures of the tests of a file whose names match, and how many tests ran."""
    file = parse_pairs(path.read_text(encoding="utf-8"))
    rules = _rules(path, file)
    failures: list[str] = []
    ran = 0
    for pair in file.pairs:
        if only is not None and not only.search(pair.name):
            continue
        ran += 1
        try:
            found = [
                line for signal in (LOGS, TRACES) for line in evaluated(signal, rules, pair.rows.get(signal.name, []))
            ]
            unlike = difference(pair, found)
        except LakeError as error:
            unlike = f"    {error}"
        if unlike:
            failures.append(f"  test {pair.name} (line {pair.line}):\n{unlike}")
    return failures, ran


def _rules(path: Path, file: PairFile) -> list[Materialize]:
    found: list[Materialize] = []
    for name in file.rule_files:
        try:
            groups = read_rules((path.parent / name).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read the rule file {name}: {error}") from None
        require_valid(groups)
        found += [rule for group in groups for rule in group.materialized]
    return found


def evaluated(signal: Signal, rules: Sequence[Materialize], rows: Sequence[Row]) -> list[tuple[str, str]]:
    """What the rules of a signal make of rows: metric and line of every series, and of every hole."""
    own = [rule for rule in rules if rule.signal == signal.name]
    if not rows or not own:
        return []
    versions = tuple(RuleVersion(number, 1, rule) for number, rule in enumerate(own, 1))
    evaluation = RuleEvaluation(RuleSet(uuid.UUID(int=0), signal.name, 1, versions))
    for table in _tables(signal, rows):
        evaluation.add(table)
    return _lines(evaluation.result(0, _KEY))


def _tables(signal: Signal, rows: Sequence[Row]) -> list[pa.Table]:
    """The rows as ingest has them before it writes them."""
    body = _log_object(rows) if signal is LOGS else _span_object(rows)
    decoded = read_object(body, signal, "test.json")
    if decoded.rejected:
        raise BadInput(f"cannot read {decoded.rejected} of the rows")
    pieces = [part[signal.rows.suffix] for part in parts(signal, decoded.tables, (_START_MS + 3_600_000) * 10**6)]
    return [with_repeats(piece) for piece in pieces] if signal is LOGS else pieces


def _log_object(rows: Sequence[Row]) -> bytes:
    return b"\n".join(orjson.dumps({"timestamp": (_START_MS + row.time_ms) * 10**6, **row.fields}) for row in rows)


def _span_object(rows: Sequence[Row]) -> bytes:
    """OTLP in JSON, one resource per span."""
    return orjson.dumps({"resourceSpans": [_resource(number, row) for number, row in enumerate(rows, 1)]})


def _resource(number: int, row: Row) -> dict[str, Any]:
    given = dict(row.fields)
    resource = {"service.name": given.pop("service", "test")}
    start_ns = (_START_MS + row.time_ms) * 10**6
    duration = given.pop("duration", "1ms")
    span: dict[str, Any] = {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": str(given.pop("name", "span")),
        "kind": _named(given.pop("kind", "internal"), _KINDS, "kind"),
        "status": {
            "code": _named(given.pop("status", "unset"), _STATUSES, "status"),
            "message": str(given.pop("statusMessage", "")),
        },
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(start_ns + parse_duration_ms(str(duration)) * 10**6),
    }
    attributes = {}
    for name, value in given.items():
        scope, _, rest = name.partition(".")
        if scope == "resource" and rest:
            resource[rest] = value
        else:
            attributes[rest if scope == "span" and rest else name] = value
    span["attributes"] = _attributes(attributes)
    return {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"spans": [span]}]}


def _named(value: object, names: dict[str, int], what: str) -> int:
    if value not in names:
        raise BadInput(f"cannot read a span: its {what} is {value!r}", hint=f"one of {', '.join(names)}")
    return names[str(value)]


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _any_value(value)} for name, value in values.items()]


def _any_value(value: object) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": str(value)}


def _value(row: dict[str, Any]) -> Value:
    """The number of a sample: of a histogram count and sum, of different values how many there are."""
    if row.get("h_count") is None:
        return float(row["value"])
    if row["h_zero_threshold"] != distinct.ZERO_THRESHOLD:
        return row["h_count"], row["h_sum"]
    buckets: list[int] = []
    end = 0
    for span in row["h_positive_spans"]:
        start = end + span["offset"]
        end = start + span["length"]
        buckets.extend(range(start, end))
    return float(distinct.estimates(np.zeros(len(buckets), np.int64), np.array(buckets, np.int64), 1)[0])


def _lines(evaluation: Evaluation) -> list[tuple[str, str]]:
    found = [(each.name, f"hole {each.name}: {each.reason}") for each in evaluation.troubles]
    derived = evaluation.derived
    if derived is None:
        return sorted({*found})
    labels = {
        row["tid"]: LabelSet.of({**dict(row["labels"]), METRIC_NAME: row["metric_name"]})
        for row in derived.series.to_pylist()
    }
    values: dict[int, dict[int, Value]] = {}
    columns = [
        "tid",
        "timestamp",
        "value",
        *(name for name in _OF_HISTOGRAMS if name in derived.samples.schema.names),
    ]
    for row in derived.samples.select(columns).to_pylist():
        bucket = (round(row["timestamp"].timestamp() * 1000) - 1 - _START_MS) // BUCKET_MS
        values.setdefault(row["tid"], {})[bucket] = _value(row)
    found += [(labels[tid].get(METRIC_NAME), series_line(labels[tid], each)) for tid, each in values.items()]
    return sorted({*found})
