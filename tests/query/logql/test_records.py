"""Stored rows become the entries that Loki would have made of the same OTLP records."""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.formats.attributes import keys_of
from lakerunner.formats.read import read_object
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.ordering import sorted_table
from lakerunner.pipeline.repeats import with_repeats
from lakerunner.pipeline.split import merged
from lakerunner.query.logql.ast import Unwrap
from lakerunner.query.logql.entries import ERROR, Category, Entries, plain
from lakerunner.query.logql.records import _FEW_ROWS, STREAM_KEYS, _texts, columns_for, entries_of
from lakerunner.query.logql.stages.unwrap import unwrapped
from tests.components.missing import missing

Labels = dict[str, str]
#: Time, line, labels of the stream, structured metadata.
Entry = tuple[int, str, Labels, Labels]


def stored(requests: list[dict[str, Any]]) -> pa.Table:
    """The rows of OTLP requests, as ingest stores them in one segment."""
    decoded = [read_object(json.dumps(request).encode(), LOGS, "logs.json").tables for request in requests]
    return with_repeats(sorted_table(merged(LOGS, decoded)[""], LOGS.rows.sort_key))


def entries_in(table: pa.Table, names: frozenset[str] | None = None) -> Entries:
    columns = columns_for(names)
    if columns is not None:
        table = table.select([name for name in columns if name in table.column_names])
    (batch,) = table.combine_chunks().to_batches()
    return entries_of(batch, keys_of(table.schema), names)


def listed(entries: Entries) -> list[Entry]:
    columns = {key: plain(values).to_pylist() for key, values in entries.columns.items()}

    def labels(row: int, category: Category) -> Labels:
        return {
            name: values[row]
            for (each, name), values in columns.items()
            if each is category and values[row] is not None
        }

    return [
        (at, line, labels(row, Category.STREAM), labels(row, Category.METADATA))
        for row, (at, line) in enumerate(zip(entries.times_ns.tolist(), entries.lines.to_pylist(), strict=True))
    ]


# -- the same, written slowly and plainly ------------------------------------------------------------------------------


def label_name(key: str) -> str:
    reserved = re.fullmatch(r"__(.+)__", key, re.DOTALL)
    name = re.sub(r"[^a-zA-Z0-9]+", "_", reserved[1] if reserved else key)
    name = f"__{name}__" if reserved else name
    return f"key_{name}" if name[:1].isdigit() else name


def python_value(value: dict[str, Any]) -> Any:
    match value:
        case {"arrayValue": array}:
            return [python_value(item) for item in array.get("values", [])]
        case {"kvlistValue": pairs}:
            return {pair["key"]: python_value(pair["value"]) for pair in pairs.get("values", [])}
        case {"intValue": number}:
            return int(number)
        case {"doubleValue": number}:
            return int(number) if float(number).is_integer() and abs(number) < 2**53 else float(number)
        case {"boolValue": found} | {"stringValue": found} | {"bytesValue": found}:
            return found
        case _:
            return None


def value_text(value: dict[str, Any]) -> str:
    found = python_value(value)
    if isinstance(found, str):
        return found
    if isinstance(found, float):
        return re.sub(r"e([+-])0+", r"e\1", repr(found))
    return "" if found is None else json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def labels_of(key: str, value: dict[str, Any]) -> list[tuple[str, str]]:
    if "kvlistValue" in value:
        pairs = value["kvlistValue"].get("values", [])
        return [each for pair in pairs for each in labels_of(f"{label_name(key)}_{pair['key']}", pair["value"])]
    return [(label_name(key), value_text(value))]


def naive(requests: list[dict[str, Any]]) -> list[Entry]:
    found = []
    for request in requests:
        for parent in request["resourceLogs"]:
            resource = parent.get("resource", {}).get("attributes", [])
            indexed = [each for each in resource if each["key"] in STREAM_KEYS]
            stream = {label_name(each["key"]): value_text(each["value"]) for each in indexed}
            if "service_name" not in stream:
                named = ("container_name", "k8s_container_name", "k8s_job_name")
                stream["service_name"] = next((stream[name] for name in stream if name in named), "unknown_service")
            for child in parent["scopeLogs"]:
                scope = child.get("scope", {})
                found += [naive_entry(record, scope, resource, stream) for record in child["logRecords"]]
    return found


def naive_entry(record: dict[str, Any], scope: dict[str, Any], resource: list[Any], stream: Labels) -> Entry:
    metadata: list[tuple[str, str]] = []
    for pair in record.get("attributes", []):
        metadata += labels_of(pair["key"], pair["value"])
    at, observed = int(record.get("timeUnixNano", 0)), int(record.get("observedTimeUnixNano", 0))
    metadata += [
        ("observed_timestamp", str(observed) if at and observed else ""),
        ("severity_number", str(record.get("severityNumber") or "")),
        ("severity_text", record.get("severityText", "")),
        ("dropped_attributes_count", str(record.get("droppedAttributesCount") or "")),
        ("flags", str(record.get("flags") or "")),
        ("trace_id", record.get("traceId", "").lower()),
        ("span_id", record.get("spanId", "").lower()),
    ]
    for pair in resource:
        if pair["key"] not in STREAM_KEYS:
            metadata += labels_of(pair["key"], pair["value"])
    for pair in scope.get("attributes", []):
        metadata += labels_of(pair["key"], pair["value"])
    metadata += [("scope_name", scope.get("name", "")), ("scope_version", scope.get("version", ""))]
    shown = {f"{name}_extracted" if name in stream else name: value for name, value in metadata if value}
    return at or observed, value_text(record.get("body", {})), stream, shown


# -- tests -------------------------------------------------------------------------------------------------------------


def text(value: str) -> dict[str, Any]:
    return {"stringValue": value}


def request(*records: dict[str, Any], resource: list[Any] | None = None, scope: dict[str, Any] | None = None) -> Any:
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": resource or []},
                "scopeLogs": [{"scope": scope or {}, "logRecords": list(records)}],
            }
        ]
    }


def pair(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "value": value}


NESTED = {"kvlistValue": {"values": [pair("a.b", {"intValue": "1"}), pair("deep", {"kvlistValue": {"values": [
    pair("x", {"arrayValue": {"values": [{"doubleValue": 5.0}, {}]}})]}}), pair("none", {})]}}  # fmt: skip
OWN = [
    request(
        {"timeUnixNano": "7", "observedTimeUnixNano": "9", "body": text("one"), "severityText": "warn", "flags": 1},
        {
            "timeUnixNano": "8",
            "body": text("two"),
            "attributes": [pair("LEVEL", text("x")), pair("n", {"intValue": "5"})],
        },
        {"timeUnixNano": "9", "body": NESTED, "attributes": [pair("map", NESTED), pair("map_a_b", text("later"))]},
        {"observedTimeUnixNano": "10", "attributes": [pair("level", text("x")), pair("empty", text(""))]},
        {"timeUnixNano": "11", "attributes": [pair("host.name", text("mine")), pair("service.name", text("shadow"))]},
        {"timeUnixNano": "12", "attributes": [pair("trace_id", text("attr")), pair("scope.name", text("attr"))]},
        {"timeUnixNano": "13", "traceId": "ab" * 16, "attributes": [pair("trace_id", text("attr"))]},
        resource=[
            pair("service.name", text("a")),
            pair("host.name", text("h")),
            pair("Big", {"intValue": str(2**63 - 1)}),
        ],
        scope={"name": "lib", "version": "1", "attributes": [pair("beta", {"boolValue": True}), pair("9", text("d"))]},
    ),
    request(
        {"timeUnixNano": "14", "severityNumber": 9, "attributes": [pair("Level", text("y")), pair("n", text("five"))]},
        {"timeUnixNano": "15", "attributes": [pair("tiny", {"doubleValue": 1e-9}), pair("n", {"doubleValue": 1e15})]},
        {"timeUnixNano": "16", "body": {"bytesValue": base64.b64encode(b"\0raw").decode()}},
        resource=[pair("k8s.job.name", text("nightly")), pair("container.name", text("box")), pair("a..b", text("r"))],
    ),
    request({"timeUnixNano": "17", "attributes": [pair("a:b", text("own")), pair("cloud.region", text("here"))]}),
]


def without_level(entries: list[Entry]) -> Counter[str]:
    return Counter(
        repr((at, line, sorted(stream.items()), sorted((n, v) for n, v in metadata.items() if n != "detected_level")))
        for at, line, stream, metadata in entries
    )


def test_labels_are_those_of_loki() -> None:
    assert without_level(listed(entries_in(stored(OWN)))) == without_level(naive(OWN))


def test_wanted_labels_are_the_same_as_among_all() -> None:
    table = stored(OWN)
    whole = listed(entries_in(table))
    for name in {*entries_in(table).names(), "absent", "k8s_job_name_extracted"}:
        chosen = listed(entries_in(table, frozenset({name})))
        for one, other in zip(chosen, whole, strict=True):
            assert one[:2] == other[:2]
            for category in (2, 3):
                assert one[category] == {key: value for key, value in other[category].items() if key == name}, name


def test_segments_of_earlier_releases_have_entries_too() -> None:
    table = stored(OWN).drop_columns(["level", "chq_fingerprint", "severity_derived", "spelled_keys", "repeat"])
    entries = listed(entries_in(table.drop_columns(["service_name"])))
    assert len(entries) == len(naive(OWN))
    assert {(stream["service_name"], metadata["detected_level"]) for _, _, stream, metadata in entries} == {
        ("unknown_service", "unknown")
    }


def test_of_exact_repeats_one_is_an_entry() -> None:
    record = {"timeUnixNano": "5", "body": text("same")}
    other = record | {"attributes": [pair("a", text("b"))]}
    entries = listed(entries_in(stored([request(record, record, other), request(record)])))
    assert sorted(metadata.get("a", "") for *_, metadata in entries) == ["", "b"]


def suite() -> Path | None:
    named = os.environ.get("LAKERUNNER_TEST_LOGQLTEST")
    if named:
        return Path(named)
    folders = (parent / "shared" / "logqltest" for parent in Path(__file__).parents)
    return next((folder for folder in folders if folder.is_dir()), None)


def test_recorded_data_has_the_recorded_labels() -> None:
    folder = suite()
    if folder is None:
        message = "recorded LogQL cases are not there: set LAKERUNNER_TEST_LOGQLTEST to their folder"
        missing(message)
    with (folder / "data.otlp.jsonl").open() as lines:
        requests = [json.loads(line) for line in lines]
    entries = listed(entries_in(stored(requests)))
    wanted = without_level(naive(requests))
    assert without_level(entries) == Counter(dict.fromkeys(wanted, 1))
    found = {(str(at), line): metadata["detected_level"] for at, line, _, metadata in entries}
    for case in map(json.loads, (folder / "otlp_mapping.jsonl").read_text().splitlines()):
        for stream in case.get("expect_categorized", {}).get("result", []):
            for at, line, shown in (value for value in stream["values"] if len(value) == 3 and value[2]):
                assert found[at, line] == shown["structuredMetadata"].get("detected_level", found[at, line])


@given(
    st.one_of(
        st.lists(st.none() | st.floats(), min_size=1).map(lambda values: pa.array(values, pa.float64())),
        st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1).map(lambda each: pa.array(each, pa.int64())),
        st.lists(st.none() | st.sampled_from(["", "a", "b"]), min_size=1).map(lambda each: pa.array(each, pa.string())),
    )
)
def test_labels_of_few_rows_are_those_of_many(values: pa.Array) -> None:
    """Few rows are made into labels without Arrow's kernels; repeated often enough, the same rows are many."""
    many = pa.concat_arrays([values] * (_FEW_ROWS + 1))
    few, expected = _texts(values), _texts(many)
    assert (few is None) == (expected is None)
    if few is not None and expected is not None:
        assert plain(few).to_pylist() == plain(expected).to_pylist()[: len(values)]


_numbers = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1).map(lambda value: {"intValue": str(value)}),
    st.floats(allow_nan=True).map(lambda value: {"doubleValue": value if math.isfinite(value) else str_of(value)}),
    st.sampled_from(["7", "x", "", "1e3"]).map(lambda value: {"stringValue": value}),
)


def str_of(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@given(rows=st.lists(st.tuples(_numbers, _numbers, _numbers), min_size=1, max_size=30))
def test_numbers_that_are_unwrapped_are_those_that_their_texts_say(rows: list[tuple[Any, Any, Any]]) -> None:
    """Also if resources, scopes or the stream have a value of the same name."""

    def attributes(name: str, value: Any) -> list[dict[str, Any]]:
        return [] if value is None else [{"key": name, "value": value}]

    requests = []
    for number, (own, of_resource, of_stream) in enumerate(rows):
        record = {"timeUnixNano": str(10**18 + number), "attributes": attributes("took", own)}
        record["attributes"] += attributes("cloud.region", own)
        resource = {"attributes": attributes("took", of_resource) + attributes("cloud.region", of_stream)}
        logs = {"resource": resource, "scopeLogs": [{"logRecords": [record]}]}
        requests.append({"resourceLogs": [logs]})
    table = stored(requests)
    for label in ("took", "cloud_region", "cloud_region_extracted", "absent"):
        names = frozenset({label, "service_name"})
        by_text, numbers = (_unwrapped(table, names, label, number) for number in (None, label))
        assert by_text == numbers


def _unwrapped(table: pa.Table, names: frozenset[str], label: str, number: str | None) -> list[tuple[int, str, str]]:
    """Time, sample, and error of each entry that has a value."""
    columns = columns_for(names)
    assert columns is not None
    (batch,) = table.select([name for name in columns if name in table.column_names]).combine_chunks().to_batches()
    entries = entries_of(batch, keys_of(table.schema), names, number=number)
    entries, samples = unwrapped(entries, Unwrap(label, ""), lambda: None)
    errors = entries.label(ERROR)
    failed = [""] * len(entries) if errors is None else plain(errors).to_pylist()
    return sorted(zip(entries.times_ns.tolist(), map(repr, samples.tolist()), map(str, failed), strict=True))
