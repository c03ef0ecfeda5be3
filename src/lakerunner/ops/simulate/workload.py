"""What a simulation sends: raw objects of many orgs over many days, a pure function of the seed.

Every row carries a number. The numbers of an org and signal run from 0 without a gap, so that a lost, doubled or
foreign row is found by counting.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS, NS_PER_S
from lakerunner.store.keys import raw_prefix

COLLECTOR = "simulated"
#: The attribute of log records and spans that holds the row's number. For metrics it is the value of this gauge.
ROW_ATTRIBUTE, ROW_METRIC = "simulate.row", "simulated_row"
_SERVICES = ("cart", "checkout", "payment", "search", "shipping")
_LEVELS = ((9, "INFO"), (9, "INFO"), (9, "INFO"), (13, "WARN"), (17, "ERROR"))
_PATHS = ("/api/cart", "/api/checkout", "/api/pay", "/api/search", "/api/ship")


@dataclass(frozen=True, slots=True)
class Workload:
    """The size of a simulation. `objects_per_day` counts the raw objects of one org and signal."""

    days: int
    orgs: int
    objects_per_day: int
    rows_per_object: int
    signals: tuple[str, ...]
    seed: int
    #: The beginning of the first simulated day.
    start_ns: int

    @property
    def objects(self) -> int:
        return self.days * self.orgs * self.objects_per_day * len(self.signals)

    @property
    def rows(self) -> int:
        return self.objects * self.rows_per_object

    @property
    def width_ns(self) -> int:
        """The time between two objects of one org and signal."""
        return NS_PER_DAY // self.objects_per_day

    def org_ids(self) -> list[uuid.UUID]:
        chance = random.Random(f"orgs {self.seed}")
        return [uuid.UUID(int=chance.getrandbits(128), version=4) for _ in range(self.orgs)]


@dataclass(frozen=True, slots=True)
class RawPart:
    """One raw object: where it goes, and which rows are in it."""

    workload: Workload
    org_id: uuid.UUID
    signal: str
    slot: int

    @property
    def rows(self) -> int:
        return self.workload.rows_per_object

    @property
    def first_row(self) -> int:
        return self.slot * self.rows

    @property
    def start_ns(self) -> int:
        return self.workload.start_ns + self.slot * self.workload.width_ns

    @property
    def key(self) -> str:
        day = dt.datetime.fromtimestamp(self.start_ns // NS_PER_S, dt.UTC).strftime("%Y-%m-%d")
        return f"{raw_prefix(self.org_id)}{COLLECTOR}/{day}/{self.signal}_{self.slot:08d}.binpb"

    def body(self) -> bytes:
        chance = random.Random(f"{self.workload.seed} {self.org_id} {self.signal} {self.slot}")
        # Milliseconds: metrics keep no finer times, and no two samples of a series may share one.
        step_ns = max(NS_PER_MS, self.workload.width_ns // self.rows // NS_PER_MS * NS_PER_MS)
        rows = [_Row(self.first_row + nth, self.start_ns + nth * step_ns, chance) for nth in range(self.rows)]
        return _ENCODERS[self.signal](rows)


def parts_of(workload: Workload, hour: int) -> Iterator[RawPart]:
    """The objects that collectors begin in an hour of the simulation, of all orgs and signals."""
    begin, end = (-(-each * NS_PER_HOUR // workload.width_ns) for each in (hour, hour + 1))
    org_ids = workload.org_ids()
    for slot in range(begin, min(end, workload.days * workload.objects_per_day)):
        for org_id in org_ids:
            for signal in workload.signals:
                yield RawPart(workload, org_id, signal, slot)


@dataclass(slots=True)
class _Row:
    number: int
    time_ns: int
    chance: random.Random


def _logs(rows: Sequence[_Row]) -> bytes:
    request = ExportLogsServiceRequest()
    records = {}
    for row in rows:
        service = row.chance.randrange(len(_SERVICES))
        if service not in records:
            group = request.resource_logs.add(resource=_resource(_SERVICES[service]))
            records[service] = group.scope_logs.add().log_records
        number, text = row.chance.choice(_LEVELS)
        took_ms, user = row.chance.randrange(1, 900), row.chance.randrange(10_000)
        record = records[service].add(
            time_unix_nano=row.time_ns, observed_time_unix_nano=row.time_ns, severity_number=number, severity_text=text
        )
        record.body.string_value = f"GET {_PATHS[service]} took {took_ms} ms for user {user}"
        record.attributes.extend([_number(ROW_ATTRIBUTE, row.number), _number("http.duration_ms", took_ms)])
    return request.SerializeToString()


def _metrics(rows: Sequence[_Row]) -> bytes:
    request = ExportMetricsServiceRequest()
    points = {}
    for row in rows:
        service = row.number % len(_SERVICES)
        if service not in points:
            group = request.resource_metrics.add(resource=_resource(_SERVICES[service]))
            points[service] = group.scope_metrics.add().metrics.add(name=ROW_METRIC).gauge.data_points
        points[service].add(time_unix_nano=row.time_ns, as_double=float(row.number))
    return request.SerializeToString()


def _traces(rows: Sequence[_Row]) -> bytes:
    request = ExportTraceServiceRequest()
    spans = {}
    for row in rows:
        service = row.chance.randrange(len(_SERVICES))
        if service not in spans:
            group = request.resource_spans.add(resource=_resource(_SERVICES[service]))
            spans[service] = group.scope_spans.add().spans
        span = spans[service].add(
            trace_id=row.chance.randbytes(16),
            span_id=row.chance.randbytes(8),
            name=f"GET {_PATHS[service]}",
            start_time_unix_nano=row.time_ns,
            end_time_unix_nano=row.time_ns + row.chance.randrange(1, 900) * NS_PER_MS,
        )
        span.attributes.append(_number(ROW_ATTRIBUTE, row.number))
    return request.SerializeToString()


_ENCODERS: dict[str, Callable[[Sequence[_Row]], bytes]] = {"logs": _logs, "metrics": _metrics, "traces": _traces}


def _resource(service: str) -> Resource:
    return Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value=service))])


def _number(key: str, value: int) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(int_value=value))
