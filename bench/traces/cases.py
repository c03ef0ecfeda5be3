"""Questions in TraceQL, and the same in the SQL of chDB and DuckDB, with what both must answer."""

# ruff: noqa: S608  (no text of others is in the SQL)

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np
from bench.traces.spans import SEGMENT_NS, START_NS

from lakerunner.model.time import NS_PER_S

Rows = list[tuple[Any, ...]]
MOST = 262_144
SLOW = "attr_http_status_code = 503 AND duration_ns > 900000000"
_FAILED = "SELECT DISTINCT trace_id FROM {table} WHERE " + SLOW
_BELOW = (
    "SELECT DISTINCT b.trace_id FROM {table} AS b JOIN (SELECT trace_id, min(span_id) AS top FROM {table}"
    " WHERE service_name = 'service-03' GROUP BY trace_id) AS a ON a.trace_id = b.trace_id"
    f" WHERE {SLOW} AND a.top < b.span_id"
)


@dataclass(frozen=True)
class Case:
    name: str
    path: str
    fields: Sequence[tuple[str, str]]
    sql: str
    #: The columns that the answer needs.
    columns: tuple[str, ...]
    ours: Callable[[Any], Any]
    theirs: Callable[[Rows], Any]
    #: At most so much of chDB's CPU time.
    most: float | None = None
    #: The case whose time must not be exceeded more than three times.
    beside: str = ""

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.fields)}"


def cases(segments: int) -> list[Case]:
    minutes = max(1, segments // 2)
    ends = [("start", str(START_NS // NS_PER_S)), ("end", str((START_NS + minutes * SEGMENT_NS) // NS_PER_S))]
    flat = "{ span.http.status_code = 503 && duration > 900ms }"
    structural = '{ resource.service.name = "service-03" } >> ' + flat
    searched = ("trace_id", "attr_http_status_code", "duration_ns", "start_timestamp")
    found = []
    flat_name = "search by attribute and duration"
    for name, query, matching, columns, beside in (
        (flat_name, flat, _FAILED, searched, ""),
        ("structural search", structural, _BELOW, (*searched, "span_id", "service_name"), flat_name),
    ):  # fmt: skip
        for what, limit in (("newest 20", 20), ("all", MOST)):
            found.append(
                Case(
                    f"{name}, {what}",
                    "/api/search",
                    [("q", query), ("limit", str(limit)), *ends],
                    "SELECT trace_id, min(start_timestamp) AS began FROM {table} WHERE trace_id IN (" + matching + ") "
                    f"GROUP BY trace_id ORDER BY began DESC LIMIT {limit}",
                    columns,
                    lambda body: sorted(each["traceID"].rjust(32, "0") for each in body["traces"]),
                    lambda rows: sorted(row[0] for row in rows),
                    most=1.0,
                    beside=f"{beside}, {what}" if beside else "",
                )
            )
    step = [("step", f"{SEGMENT_NS // NS_PER_S}s"), ("nocache", "1"), *ends]
    rate = "{ span.http.status_code >= 500 } | rate() by (resource.service.name)"
    quantiles = "{ } | quantile_over_time(duration, .5, .99)"
    return [
        *found,
        Case("rate by service", "/api/metrics/query_range", [("q", rate), *step],
             "SELECT service_name, {minute}, count(*) FROM {table} WHERE attr_http_status_code >= 500 GROUP BY 1, 2",
             ("service_name", "attr_http_status_code", "start_timestamp"), _rates,
             lambda rows: Counter({(row[0], int(row[1])): int(row[2]) for row in rows})),
        Case("quantiles of durations", "/api/metrics/query_range", [("q", quantiles), *step],
             "SELECT {minute}, CAST(ceil(log2(duration_ns)) AS INTEGER), count(*) FROM {table} GROUP BY 1, 2",
             ("duration_ns", "start_timestamp"), _quantiles, lambda rows: brute_quantiles(rows, (0.5, 0.99))),
        Case("tag values of a span", "/api/v2/search/tag/span.http.route/values", ends,
             "SELECT DISTINCT attr_http_route FROM {table}", ("attr_http_route",), _values,
             lambda rows: sorted(row[0] for row in rows)),
        Case("tag values of failed spans", "/api/v2/search/tag/resource.k8s.pod.name/values",
             [("q", flat), *ends], "SELECT DISTINCT resource_k8s_pod_name FROM {table} WHERE " + SLOW,
             ("resource_k8s_pod_name", "attr_http_status_code", "duration_ns"), _values,
             lambda rows: sorted(row[0] for row in rows)),
    ]  # fmt: skip


def _values(body: Any) -> list[str]:
    return sorted(each["value"] for each in body["tagValues"])


def _points(body: Any, label: str) -> dict[tuple[Any, int], float]:
    """Values by label and minute. A point covers the minute that ends at it."""
    found = {}
    for series in body["series"]:
        value = next(each["value"] for each in series["labels"] if each["key"] == label)
        name = value.get("stringValue", value.get("doubleValue"))
        for sample in series["samples"]:
            if sample["value"]:
                found[name, int(sample["timestampMs"]) // 60_000 - 1] = sample["value"]
    return found


def _rates(body: Any) -> Counter[tuple[str, int]]:
    seconds = SEGMENT_NS // NS_PER_S
    return Counter({key: round(value * seconds) for key, value in _points(body, "resource.service.name").items()})


def _quantiles(body: Any) -> dict[tuple[float, int], str]:
    return {key: f"{value:.9g}" for key, value in _points(body, "p").items()}


def brute_quantiles(rows: Rows, quantiles: Sequence[float]) -> dict[tuple[float, int], str]:
    """Quantiles per minute of counts per power of two, interpolated within their bucket."""
    minutes: dict[int, dict[int, int]] = {}
    for minute, bucket, count in rows:
        minutes.setdefault(int(minute), {})[int(bucket)] = int(count)
    found = {}
    for minute, counts in minutes.items():
        for quantile in quantiles:
            left = max(1.0, np.ceil(quantile * sum(counts.values())))
            before = None
            for bucket in sorted(counts):
                if left <= counts[bucket]:
                    low = 2.0 ** (bucket - 1 if before is None else before)
                    value = low * (2.0**bucket / low) ** (left / counts[bucket]) / NS_PER_S
                    found[quantile, minute] = f"{value:.9g}"
                    break
                left, before = left - counts[bucket], bucket
    return found


def loaded(body: bytes) -> Any:
    return json.loads(body)
