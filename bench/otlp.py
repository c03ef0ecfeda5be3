"""Generate OTLP telemetry for benchmarks: many services, connected traces, growing counters."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Status, TracesData

START_NS = 1_763_200_800_000_000_000
SERVICES = tuple(f"{name}-{part}" for name in ("cart", "pay", "ship", "search", "user") for part in ("api", "worker"))
ROUTES = tuple(
    f"/api/v1/{noun}/{verb}" for noun in ("cart", "order", "item", "user") for verb in ("get", "put", "list")
)
#: Records of one object: about what a collector sends after a few seconds.
OBJECT_ROWS = 10_000
#: Series of one scrape.
_SERIES = 2_500


def pairs(attributes: dict[str, Any]) -> list[KeyValue]:
    pairs = []
    for key, value in attributes.items():
        pair = KeyValue(key=key)
        kind = {bool: "bool_value", int: "int_value", float: "double_value"}.get(type(value), "string_value")
        setattr(pair.value, kind, value)
        pairs.append(pair)
    return pairs


def resource(service: str, replica: int) -> Resource:
    return Resource(
        attributes=pairs(
            {
                "service.name": service,
                "service.namespace": "shop",
                "service.instance.id": f"{service}-{replica}",
                "service.version": "2.3.1",
                "k8s.pod.name": f"{service}-5f7d8c9b6d-{replica:05d}",
                "k8s.node.name": f"node-{replica % 7}",
                "k8s.namespace.name": "shop",
                "cloud.region": "eu-west-1",
            }
        )
    )


def _each_service(rng: random.Random) -> Iterator[Resource]:
    for service in SERVICES:
        yield resource(service, rng.randrange(20))


def logs(number: int, rows: int) -> bytes:
    rng = random.Random(number)
    batch = LogsData()
    share = rows // len(SERVICES)
    for resource in _each_service(rng):
        records = batch.resource_logs.add(resource=resource).scope_logs.add()
        records.scope.name = "shop.logging"
        trace_id = rng.randbytes(16)
        for i in range(share):
            if i % 5 == 0:
                trace_id = rng.randbytes(16)
            route, status = rng.choice(ROUTES), rng.choice((200, 200, 200, 200, 201, 404, 500))
            at_ns = START_NS + number * 1_000_000_000 + i * 1_000_000 + rng.randrange(1_000_000)
            record = records.log_records.add(
                time_unix_nano=at_ns,
                observed_time_unix_nano=at_ns + 300_000,
                severity_text="ERROR" if status == 500 else "INFO",
                severity_number=17 if status == 500 else 9,
                attributes=pairs(
                    {
                        "http.request.method": "GET",
                        "http.route": route,
                        "http.response.status_code": status,
                        "duration_ms": round(rng.expovariate(0.05), 2),
                        "user.id": f"u-{rng.randrange(20_000)}",
                        "thread.name": f"pool-1-thread-{rng.randrange(32)}",
                        "code.function": "handle",
                    }
                ),
                trace_id=trace_id,
                span_id=rng.randbytes(8),
                flags=1,
            )
            record.body.string_value = (
                f"GET {route} answered {status} for user u-{rng.randrange(20_000)} in {i % 97} ms"
            )
    return batch.SerializeToString()


def traces(number: int, rows: int) -> bytes:
    rng = random.Random(number)
    batch = TracesData()
    share = rows // len(SERVICES)
    # A trace visits every service once: the i-th span of each service belongs to the i-th trace.
    ids = [rng.randbytes(16) for _ in range(share)]
    parents = [b""] * share
    for resource in _each_service(rng):
        spans = batch.resource_spans.add(resource=resource).scope_spans.add()
        spans.scope.name = "shop.tracing"
        for i in range(share):
            route, status = rng.choice(ROUTES), rng.choice((200, 200, 200, 200, 404, 500))
            start_ns = START_NS + number * 1_000_000_000 + i * 1_000_000 + rng.randrange(1_000_000)
            span = spans.spans.add(
                trace_id=ids[i],
                span_id=rng.randbytes(8),
                parent_span_id=parents[i],
                name=f"GET {route}",
                kind=2,
                start_time_unix_nano=start_ns,
                end_time_unix_nano=start_ns + rng.randrange(100_000, 300_000_000),
                attributes=pairs(
                    {
                        "http.request.method": "GET",
                        "url.path": route,
                        "http.response.status_code": status,
                        "server.address": f"10.1.{rng.randrange(4)}.{rng.randrange(250)}",
                        "user.id": f"u-{rng.randrange(20_000)}",
                    }
                ),
                flags=1,
            )
            parents[i] = span.span_id
            if status == 500:
                span.status.code = Status.STATUS_CODE_ERROR
                span.events.add(
                    time_unix_nano=start_ns + 5_000, name="exception", attributes=pairs({"type": "IOError"})
                )
    return batch.SerializeToString()


def metrics(number: int, rows: int) -> bytes:
    """Return scrapes ten seconds apart: half counters, four tenths gauges, one tenth histograms."""
    batch = MetricsData()
    scrapes = max(1, rows // _SERIES)
    for scrape in range(scrapes):
        _scrape(batch, number * scrapes + scrape, min(rows, _SERIES))
    return batch.SerializeToString()


def _scrape(batch: MetricsData, tick: int, points: int) -> None:
    rng = random.Random(tick)
    times = {"start_time_unix_nano": START_NS, "time_unix_nano": START_NS + tick % 300 * 10_000_000_000}
    per_service = points // len(SERVICES)
    for index, service in enumerate(SERVICES):
        found = batch.resource_metrics.add(resource=resource(service, tick // 300)).scope_metrics.add()
        requests = found.metrics.add(name="http.server.requests", unit="{request}").sum
        requests.is_monotonic = True
        requests.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        for i in range(per_service // 2):
            requests.data_points.add(as_int=tick * (i + 1) * 3 + index, attributes=_labels(i), **times)
        memory = found.metrics.add(name="process.memory.usage", unit="By").gauge
        for i in range(per_service * 4 // 10):
            memory.data_points.add(as_double=float(rng.randrange(1 << 18) * 4096), attributes=_labels(i), **times)
        latency = found.metrics.add(name="http.server.duration", unit="s").histogram
        latency.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        for i in range(per_service - per_service // 2 - per_service * 4 // 10):
            counts = [tick * (n + 1) // 3 for n in range(12)]
            latency.data_points.add(
                count=sum(counts), sum=tick * 1.25, bucket_counts=counts, attributes=_labels(i),
                explicit_bounds=[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0], **times,
            )  # fmt: skip


def _labels(i: int) -> list[KeyValue]:
    return pairs({"http.request.method": "GET", "http.route": f"/api/r{i}", "http.response.status_code": 200})


MAKERS: dict[str, Callable[[int, int], bytes]] = {"logs": logs, "metrics": metrics, "traces": traces}


def _make(signal: str, number: int, rows: int, path: Path) -> None:
    if not path.exists():
        path.write_bytes(MAKERS[signal](number, rows))


def objects(signal: str, rows: int, folder: Path) -> list[Path]:
    """Return files of `OBJECT_ROWS` records each, generated once and reused."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{signal}_{OBJECT_ROWS}_{number:05d}.binpb" for number in range(-(-rows // OBJECT_ROWS))]
    with ProcessPoolExecutor() as pool:
        numbers = range(len(paths))
        list(pool.map(_make, [signal] * len(paths), numbers, [OBJECT_ROWS] * len(paths), paths))
    return paths
