"""The records of a conformance suite as entries, made in plain Python: stages can be tried without ingest and a lake.

`detected_level` is left out. Its rules are those of ingest, and no stage depends on them.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakerunner.query.logql.entries import Category, Entries
from tests.query.logqltest.suite import Suite

Labels: TypeAlias = dict[str, str]

_K8S = (
    "cluster",
    "namespace",
    "pod",
    "container",
    "deployment",
    "statefulset",
    "daemonset",
    "replicaset",
    "job",
    "cronjob",
)
_STREAM = {
    "service.name",
    "service.namespace",
    "service.instance.id",
    "deployment.environment",
    "deployment.environment.name",
    "cloud.region",
    "cloud.availability_zone",
    "container.name",
    *(f"k8s.{kind}.name" for kind in _K8S),
}


@lru_cache(maxsize=1)
def suite_entries(suite: Suite) -> Entries:
    times, lines, labels, seen = [], [], [], set()
    for time_ns, line, stream, metadata in itertools.chain.from_iterable(map(_records, suite.requests)):
        record = json.dumps([time_ns, line, stream, metadata], sort_keys=True)
        if record not in seen:
            seen.add(record)
            times.append(time_ns)
            lines.append(line)
            labels.append((stream, metadata))
    return entries_of(lines, [one[0] for one in labels], [one[1] for one in labels], times)


def entries_of(
    lines: Sequence[str],
    streams: Sequence[Mapping[str, str]] | None = None,
    metadata: Sequence[Mapping[str, str]] | None = None,
    times_ns: Sequence[int] | None = None,
) -> Entries:
    """Entries of lines and their labels."""
    columns = {}
    for category, sets in ((Category.STREAM, streams), (Category.METADATA, metadata)):
        for name in sorted({name for each in sets or () for name in each}):
            columns[category, name] = pa.array([each.get(name) for each in sets or ()], pa.string())
    return Entries(np.array(times_ns or range(len(lines)), np.int64), pa.array(lines, pa.string()), columns)


def rows_of(entries: Entries) -> list[tuple[int, str, Labels, Labels, Labels]]:
    """Time, line, and the labels of each category."""
    labels: list[list[Labels]] = [[{} for _ in range(len(entries))] for _ in Category]
    for (category, name), values in entries.columns.items():
        if values.null_count < len(values):
            for row, value in enumerate(values.to_pylist()):
                if value is not None:
                    labels[category][row][name] = value
    return list(zip(entries.times_ns.tolist(), entries.lines.to_pylist(), *labels, strict=True))


def _records(request: bytes) -> Iterator[tuple[int, str, Labels, Labels]]:
    for resource in json.loads(request)["resourceLogs"]:
        stream: Labels = {}
        shared: Labels = {}
        for key, value in _flat(resource.get("resource", {}).get("attributes", [])):
            (stream if key in _STREAM else shared)[_name(key)] = value
        stream.setdefault("service_name", stream.get("container_name", "unknown_service"))
        for scope in resource.get("scopeLogs", []):
            scoped = dict(shared)
            about = scope.get("scope", {})
            scoped |= {_name(key): value for key, value in _flat(about.get("attributes", []))}
            for field, label in (("name", "scope_name"), ("version", "scope_version")):
                if about.get(field):
                    scoped[label] = about[field]
            for record in scope.get("logRecords", []):
                yield _record(record, stream, scoped)


def _record(record: dict[str, Any], stream: Labels, scoped: Labels) -> tuple[int, str, Labels, Labels]:
    metadata = dict(scoped)
    for key, value in _flat(record.get("attributes", [])):
        name = _name(key)
        metadata[f"{name}_extracted" if name in stream else name] = value
    time_ns, observed_ns = int(record.get("timeUnixNano", 0)), int(record.get("observedTimeUnixNano", 0))
    found = {
        "severity_text": record.get("severityText"),
        "severity_number": record.get("severityNumber"),
        "trace_id": record.get("traceId"),
        "span_id": record.get("spanId"),
        "flags": record.get("flags"),
        "observed_timestamp": observed_ns if time_ns else 0,
        "dropped_attributes_count": record.get("droppedAttributesCount"),
    }
    metadata |= {name: str(value) for name, value in found.items() if value}
    return time_ns or observed_ns, _text(record.get("body", {})), stream, metadata


def _flat(attributes: list[dict[str, Any]], prefix: str = "") -> Iterator[tuple[str, str]]:
    for attribute in attributes:
        key, value = prefix + attribute["key"], attribute.get("value", {})
        if "kvlistValue" in value:
            yield from _flat(value["kvlistValue"].get("values", []), f"{key}.")
        elif text := _text(value):
            yield key, text


def _name(key: str) -> str:
    name = re.sub(r"_*[^a-zA-Z0-9_]+_*", "_", key)
    return f"key_{name}" if name[:1].isdigit() else name


def _text(value: dict[str, Any]) -> str:
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    return "" if plain is None else json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: dict[str, Any]) -> Any:
    if "intValue" in value:
        return int(value["intValue"])
    if "doubleValue" in value:
        number = float(value["doubleValue"])
        return int(number) if number.is_integer() and abs(number) < 1e21 else number
    if "bytesValue" in value:
        return base64.b64encode(base64.b64decode(value["bytesValue"])).decode()
    if "arrayValue" in value:
        return [_plain(each) for each in value["arrayValue"].get("values", [])]
    if "kvlistValue" in value:
        return {each["key"]: _plain(each.get("value", {})) for each in value["kvlistValue"].get("values", [])}
    return next(iter(value.values()), None)
