"""Spans from a seed, made on columns. A trace is a chain of ten spans, five of them in each of two segments."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.formats.attributes import with_keys
from lakerunner.model.signals.traces import TRACES
from lakerunner.model.time import NS_PER_S

START_NS = 1_700_000_000 * NS_PER_S // (3600 * NS_PER_S) * (3600 * NS_PER_S)
PER_SEGMENT, PER_TRACE = 50_000, 10
#: The time that a pair of segments covers.
SEGMENT_NS = 60 * NS_PER_S
TRACES_PER_PAIR = PER_SEGMENT // (PER_TRACE // 2)
SERVICES, NAMES, ROUTES, PODS = 20, 50, 40, 200
_STATUS = np.array([200.0, 204.0, 404.0, 503.0])
_DIGITS = np.frombuffer(b"".join(b"%02x" % each for each in range(256)), np.uint8).reshape(256, 2)

Ids = npt.NDArray[np.uint64]


def trace_ids(number: npt.NDArray[np.int64]) -> pa.Array:
    """The ids of the traces with these numbers: random to the eye, and never the same."""
    mixed = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return hexed(np.stack([mixed ^ (mixed >> np.uint64(29)), number.astype(np.uint64)], axis=1))


def hexed(words: Ids) -> pa.Array:
    """Lower-case hex of rows of words."""
    found = _DIGITS[np.ascontiguousarray(words.astype(">u8")).view(np.uint8).reshape(-1)]
    width = words.shape[1] * 16
    offsets = np.arange(len(words) + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(len(words), pa.py_buffer(offsets), pa.py_buffer(found.tobytes()))


def spans(number: int) -> pa.Table:
    """One segment: half of the spans of its traces. Span ids ascend along the chain that each trace is."""
    random = np.random.default_rng([7, number])
    rows, half = PER_SEGMENT, number % 2
    trace = np.repeat(np.arange(TRACES_PER_PAIR), PER_TRACE // 2) + number // 2 * TRACES_PER_PAIR
    position = np.tile(np.arange(PER_TRACE // 2) * 2 + half, TRACES_PER_PAIR)
    start = START_NS + number // 2 * SEGMENT_NS + random.integers(0, SEGMENT_NS, rows)
    status = random.choice(_STATUS, rows, p=[0.9, 0.05, 0.04, 0.01])
    ids = (trace * PER_TRACE + position).astype(np.uint64)[:, np.newaxis]
    parents = hexed(ids - np.uint64(1))
    parents = pa.compute.if_else(pa.array(position > 0), parents, pa.scalar(None, pa.string()))
    columns = {
        "trace_id": trace_ids(trace),
        "span_id": hexed(ids),
        "parent_span_id": parents,
        "name": _chosen("operation {}", NAMES, rows, random),
        "kind": _chosen("{}", ("server", "client", "internal"), rows, random),
        "status_code": pa.array(np.where(status >= 500, "error", "unset"), pa.string()),
        "start_timestamp": pa.array(start, pa.timestamp("ns", "UTC")),
        "duration_ns": pa.array(random.integers(2, NS_PER_S, rows)),
        "service_name": _chosen("service-{:02}", SERVICES, rows, random),
    }
    attributes = {
        "attr_http_status_code": ("http.status_code", pa.array(status)),
        "attr_http_request_method": ("http.request.method", _chosen("{}", ("GET", "POST", "PUT"), rows, random)),
        "attr_http_route": ("http.route", _chosen("/api/v1/things/{}", ROUTES, rows, random)),
        "attr_user_id": ("user.id", hexed(random.integers(0, 1 << 62, (rows, 1)).astype(np.uint64))),
        "resource_k8s_pod_name": ("k8s.pod.name", _chosen("pod-{:04}", PODS, rows, random)),
        "resource_deployment_environment": ("deployment.environment", _chosen("{}", ("prod", "test"), rows, random)),
    }
    schema = TRACES.rows.schema()
    table = pa.table(list(columns.values()), schema=pa.schema([schema.field(name) for name in columns]))
    for each in schema:
        if each.name not in columns:
            table = table.append_column(each, pa.nulls(rows, each.type))
    for name, (_, values) in attributes.items():
        table = table.append_column(name, values)
    table = with_keys(table, {name: [key] for name, (key, _) in attributes.items()})
    return table.sort_by([(name, "ascending") for name in TRACES.rows.sort_key])


def _chosen(pattern: str, texts: int | tuple[str, ...], rows: int, random: np.random.Generator) -> pa.Array:
    values = [pattern.format(each) for each in (range(texts) if isinstance(texts, int) else texts)]
    return pa.array(values, pa.string()).take(pa.array(random.integers(0, len(values), rows)))
