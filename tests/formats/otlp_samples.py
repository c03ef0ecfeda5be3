"""Realistic OTLP batches, the same for the same seed: what collectors of a small shop would export."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

START_NS = 1_763_200_000_000_000_000
SERVICES = ("cart", "checkout", "payment", "shipping", "frontend", "search", "ads", "email")
ROUTES = ("/api/cart", "/api/checkout", "/api/pay", "/api/items/{id}", "/health", "/api/search")
_SEVERITIES = (("DEBUG", 5), ("INFO", 9), ("INFO", 9), ("INFO", 9), ("WARN", 13), ("ERROR", 17))


def any_value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
        case dict():
            nested = AnyValue()
            nested.kvlist_value.values.extend(pairs(value))
            nested.kvlist_value.SetInParent()
            return nested
        case None:
            return AnyValue()
        case _:
            return AnyValue(string_value=value)


def pairs(attributes: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def resource_of(service: str, replica: int) -> Resource:
    return Resource(
        attributes=pairs(
            {
                "service.name": service,
                "service.namespace": "shop",
                "service.instance.id": f"{service}-{replica}",
                "service.version": "1.4.2",
                "k8s.namespace.name": "shop",
                "k8s.pod.name": f"{service}-7d9f8b6c5-{replica:05d}",
                "k8s.node.name": f"node-{replica % 5}",
                "host.name": f"ip-10-0-0-{replica}",
                "cloud.region": "eu-west-1",
                "telemetry.sdk.language": "go",
            }
        )
    )


def scope() -> InstrumentationScope:
    return InstrumentationScope(name="github.com/shop/otel", version="0.9.1")


def log_batches(records: int, *, seed: int = 1, per_batch: int = 1_000) -> Iterator[LogsData]:
    rng = random.Random(seed)
    for start in range(0, records, per_batch):
        batch = LogsData()
        count = min(per_batch, records - start)
        for replica in range(4):
            parent = batch.resource_logs.add(resource=resource_of(rng.choice(SERVICES), replica))
            child = parent.scope_logs.add(scope=scope())
            for i in range(replica * count // 4, (replica + 1) * count // 4):
                _add_log(child, rng, START_NS + (start + i) * 1_000_000)
        yield batch


def _add_log(child: Any, rng: random.Random, time_ns: int) -> None:
    text, number = rng.choice(_SEVERITIES)
    route = rng.choice(ROUTES)
    status = rng.choice((200, 200, 200, 404, 500))
    child.log_records.add(
        time_unix_nano=time_ns,
        observed_time_unix_nano=time_ns + 250_000,
        severity_text=text,
        severity_number=number,
        body=any_value(f"handled {route} for user {rng.randrange(100_000)} with status {status}"),
        attributes=pairs(
            {
                "http.method": rng.choice(("GET", "POST")),
                "http.route": route,
                "http.status_code": status,
                "duration_ms": rng.expovariate(0.05),
                "user.id": f"u-{rng.randrange(100_000)}",
                "thread.id": rng.randrange(64),
                "cached": rng.random() < 0.3,
                "log.file.name": "app.log",
            }
        ),
        trace_id=rng.randbytes(16),
        span_id=rng.randbytes(8),
        flags=1,
    )


def trace_batches(spans: int, *, seed: int = 1, per_batch: int = 1_000) -> Iterator[TracesData]:
    rng = random.Random(seed)
    for start in range(0, spans, per_batch):
        batch = TracesData()
        count = min(per_batch, spans - start)
        for replica in range(4):
            parent = batch.resource_spans.add(resource=resource_of(rng.choice(SERVICES), replica))
            child = parent.scope_spans.add(scope=scope())
            for i in range(replica * count // 4, (replica + 1) * count // 4):
                _add_span(child, rng, START_NS + (start + i) * 1_000_000)
        yield batch


def _add_span(child: Any, rng: random.Random, time_ns: int) -> None:
    status = rng.choice((200, 200, 200, 404, 500))
    span = child.spans.add(
        trace_id=rng.randbytes(16),
        span_id=rng.randbytes(8),
        parent_span_id=rng.randbytes(8) if rng.random() < 0.8 else b"",
        name=f"GET {rng.choice(ROUTES)}",
        kind=rng.choice((1, 2, 3)),
        start_time_unix_nano=time_ns,
        end_time_unix_nano=time_ns + rng.randrange(100_000, 900_000_000),
        attributes=pairs(
            {
                "http.request.method": "GET",
                "url.path": rng.choice(ROUTES),
                "http.response.status_code": status,
                "server.address": f"svc-{rng.randrange(30)}",
                "server.port": 8080,
                "retry": rng.random() < 0.1,
            }
        ),
        flags=1,
    )
    span.status.code = 2 if status == 500 else 0
    if status == 500:
        span.status.message = "upstream failed"
        attributes = pairs({"exception.type": "IOError", "exception.message": "broken pipe"})
        span.events.add(time_unix_nano=time_ns + 5_000, name="exception", attributes=attributes)
    if rng.random() < 0.05:
        span.links.add(trace_id=rng.randbytes(16), span_id=rng.randbytes(8), attributes=pairs({"reason": "batch"}))


def metric_batches(points: int, *, seed: int = 1, series: int = 1_000) -> Iterator[MetricsData]:
    """Scrapes: every series once in a batch; half counters, a third gauges, a sixth histograms of both kinds."""
    rng = random.Random(seed)
    for number in range(-(-points // series)):
        batch = MetricsData()
        time_ns = START_NS + number * 10_000_000_000
        for replica in range(4):
            parent = batch.resource_metrics.add(resource=resource_of(SERVICES[replica], replica))
            child = parent.scope_metrics.add(scope=scope())
            _add_metrics(child, rng, time_ns, min(series, points - number * series) // 4)
        yield batch


def _add_metrics(child: Any, rng: random.Random, time_ns: int, count: int) -> None:
    times = {"start_time_unix_nano": START_NS, "time_unix_nano": time_ns}
    counters, gauges, histograms = count // 2, count // 3, count - count // 2 - count // 3
    requests = child.metrics.add(name="http.server.requests", unit="{request}", description="Requests served.")
    requests.sum.is_monotonic = True
    requests.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    for i in range(counters):
        requests.sum.data_points.add(as_int=rng.randrange(1 << 30), attributes=_labels(i), **times)
    memory = child.metrics.add(name="process.memory.usage", unit="By", description="Memory in use.")
    for i in range(gauges):
        memory.gauge.data_points.add(as_double=rng.random() * 1e9, attributes=_labels(i), time_unix_nano=time_ns)
    latency = child.metrics.add(name="http.server.duration", unit="s", description="Time to serve.")
    latency.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    for i in range(histograms // 2):
        counts = [rng.randrange(50) for _ in range(12)]
        point = latency.histogram.data_points.add(
            count=sum(counts),
            sum=rng.random() * 100,
            bucket_counts=counts,
            explicit_bounds=[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
            attributes=_labels(i),
            **times,
        )
        if i % 20 == 0:
            point.exemplars.add(as_double=0.2, time_unix_nano=time_ns, trace_id=rng.randbytes(16), span_id=b"\x01" * 8)
    size = child.metrics.add(name="http.server.body.size", unit="By", description="Size of bodies.")
    size.exponential_histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    for i in range(histograms - histograms // 2):
        counts = [rng.choice((0, 0, 3, 9)) for _ in range(20)]
        point = size.exponential_histogram.data_points.add(
            count=sum(counts) + 2, sum=rng.random() * 1e6, scale=3, zero_count=2, attributes=_labels(i), **times
        )
        point.positive.offset = rng.randrange(-40, 40)
        point.positive.bucket_counts.extend(counts)


def _labels(i: int) -> list[KeyValue]:
    return pairs(
        {
            "http.request.method": ("GET", "POST", "PUT")[i % 3],
            "http.route": f"/api/r{i}",
            "http.response.status_code": (200, 404, 500)[i % 3],
        }
    )
