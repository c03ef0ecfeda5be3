"""Decode the shop's export requests with the real protobuf classes."""

from collections.abc import Iterable, Iterator
from itertools import chain

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.demo.produce import batches
from lakerunner.demo.shop import SERVICES, Shop
from lakerunner.model.time import NS_PER_S

SEED = 3
#: Five in the afternoon, an ordinary busy time.
START_NS = 1_800_032_400 * NS_PER_S
RATE = 60.0

KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")


def resource_of(block):
    return {pair.key: pair.value.string_value for pair in block.resource.attributes}


def pairs_of(message):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in message.attributes}


def logs(payloads: Iterable[bytes]) -> Iterator:
    """Yield the resource and each of its log records."""
    for payload in payloads:
        for block in ExportLogsServiceRequest.FromString(payload).resource_logs:
            resource = resource_of(block)
            for record in chain.from_iterable(scope.log_records for scope in block.scope_logs):
                yield resource, record


def spans(payloads: Iterable[bytes]) -> Iterator:
    """Yield the resource and each of its spans."""
    for payload in payloads:
        for block in ExportTraceServiceRequest.FromString(payload).resource_spans:
            resource = resource_of(block)
            for span in chain.from_iterable(scope.spans for scope in block.scope_spans):
                yield resource, span


def points(payloads: Iterable[bytes]) -> Iterator:
    """Yield resource, metric, kind and point."""
    for payload in payloads:
        for block in ExportMetricsServiceRequest.FromString(payload).resource_metrics:
            resource = resource_of(block)
            for metric in chain.from_iterable(scope.metrics for scope in block.scope_metrics):
                kind = metric.WhichOneof("data")
                for point in getattr(metric, kind).data_points:
                    yield resource, metric, kind, point


def requests(signal: str, seconds: int, start_ns: int = START_NS, rate: float = RATE, seed: int = SEED) -> list[bytes]:
    return list(batches(signal, seed, start_ns, start_ns + seconds * NS_PER_S, rate))


def next_deploy_ns(service: str, seed: int = SEED, rate: float = RATE) -> int:
    """Return the time of the service's first deploy after START_NS."""
    at = next(at for at, spec in enumerate(SERVICES) if spec.name == service)
    shop = Shop(seed, rate)
    release = shop.release(at, 0, START_NS / NS_PER_S) + 1
    return shop.deploy_s(at, release) * NS_PER_S
