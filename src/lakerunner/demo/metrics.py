"""Encode the shop's metrics: counters, gauges and histograms of every process, every ten seconds."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from lakerunner.demo import wire
from lakerunner.demo.batch import BATCH_RECORDS, Batch
from lakerunner.demo.meters import (
    BOUNDS_S,
    EXPONENTIAL_LOW,
    QUERY_SERIES,
    SCALE,
    SERVER_SERIES,
    Meters,
    Series,
)
from lakerunner.demo.shop import INDEX, SERVICES, Shop
from lakerunner.demo.traffic import Traffic
from lakerunner.demo.wire import Attribute, Bytes, Floats, Ints, RecordTemplate, attributes, field, fixed_sentinel
from lakerunner.model.time import NS_PER_S

INTERVAL_S = 10
INTERVAL_NS = INTERVAL_S * NS_PER_S

_CUMULATIVE = pb.AGGREGATION_TEMPORALITY_CUMULATIVE
_DELTA = pb.AGGREGATION_TEMPORALITY_DELTA
#: Field numbers of Metric's kinds.
_KIND_FIELD = {"gauge": 5, "sum": 7, "histogram": 9, "exponential_histogram": 10, "summary": 11}
#: Quantiles of a summary point. In the lake each is a row, and the sum and the count are two more.
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
_BUCKETS_SENTINEL = tuple(0xB100_00B1_0000_00B1 + at for at in range(len(BOUNDS_S) + 1))


@dataclass(frozen=True, slots=True, eq=False)
class Instrument:
    """The description of one metric. Compared by identity, because it is a dictionary key once per point."""

    name: str
    kind: str
    unit: str
    description: str
    temporality: int = 0
    monotonic: bool = False

    def head(self) -> bytes:
        """Return the encoded Metric message up to its points."""
        head: bytes = pb.Metric(name=self.name, description=self.description, unit=self.unit).SerializeToString()
        return head

    def tail(self) -> bytes:
        """Return the encoded fields that follow the points in their message."""
        match self.kind:
            case "sum":
                message = pb.Sum(is_monotonic=self.monotonic)
                message.aggregation_temporality = pb.AggregationTemporality.ValueType(self.temporality)
                tail: bytes = message.SerializeToString()
                return tail
            case "histogram" | "exponential_histogram":
                return b"\x10" + bytes([self.temporality])
        return b""


HTTP = Instrument("http.server.request.duration", "histogram", "s", "Duration of HTTP server requests.", _CUMULATIVE)
RPC = Instrument("rpc.server.call.duration", "histogram", "s", "Duration of inbound calls.", _CUMULATIVE)
QUERIES = Instrument(
    "db.client.operation.duration", "exponential_histogram", "s", "Duration of database client operations.", _CUMULATIVE
)
REQUESTS = Instrument("shop.requests", "sum", "{request}", "Requests and messages handled.", _CUMULATIVE, True)
CPU = Instrument("process.cpu.time", "sum", "s", "Total CPU seconds broken down by state.", _CUMULATIVE, True)
ACTIVE = Instrument("http.server.active_requests", "sum", "{request}", "Requests in flight.", _CUMULATIVE)
MEMORY = Instrument("process.memory.usage", "sum", "By", "Physical memory in use.", _CUMULATIVE)
POOL = Instrument("db.client.connection.count", "sum", "{connection}", "Connections of the pool.", _CUMULATIVE)
UTILIZATION = Instrument("process.cpu.utilization", "gauge", "1", "CPU time over elapsed time.")
QUEUE = Instrument("shop.queue.depth", "gauge", "{message}", "Messages that wait for this consumer.")
REVENUE = Instrument("shop.revenue", "sum", "EUR", "Value of orders since the last export.", _DELTA, True)
GC = Instrument("go.gc.duration", "summary", "s", "Pauses of the garbage collector.")

_HTTP_SERVICES = {series.service for series in SERVER_SERIES if series.metric == HTTP.name}
_QUERYING_SERVICES = {series.service for series in QUERY_SERIES}
_TIMERS = {HTTP.name: HTTP, RPC.name: RPC}


class Exporter:
    """Turns traffic into points. It holds what the processes have counted, so slots must come in order."""

    def __init__(self, shop: Shop, begin_ns: int) -> None:
        self._shop = shop
        self._meters = Meters(shop, begin_ns)
        self._exported_ns = begin_ns

    def encode(self, traffic: Traffic) -> Iterator[Batch]:
        """Encode the points of every interval that ends in the slot. The rest of the slot counts for the next."""
        from_ns = traffic.slot.start_ns
        while from_ns < traffic.slot.end_ns:
            to_ns = min(from_ns - from_ns % INTERVAL_NS + INTERVAL_NS, traffic.slot.end_ns)
            if from_ns == self._exported_ns:
                self._meters.begin(from_ns - from_ns % INTERVAL_NS + INTERVAL_NS)
            self._meters.count(traffic, from_ns, to_ns)
            if to_ns % INTERVAL_NS == 0:
                yield from self._export(to_ns)
                self._exported_ns = to_ns
            from_ns = to_ns

    def _export(self, time_ns: int) -> Iterator[Batch]:
        export = _Export(self._shop, self._meters, time_ns, self._exported_ns)
        export.add_timers()
        export.add_queries()
        export.add_processes()
        export.add_business()
        yield from export.batches()


class _Export:
    """The points of one export, by pod."""

    def __init__(self, shop: Shop, meters: Meters, time_ns: int, last_ns: int) -> None:
        self._shop, self._meters, self._time_ns, self._last_ns = shop, meters, time_ns, last_ns
        self._random = shop.random("metrics", time_ns)
        #: By service and pod, then by instrument: encoded points.
        self._points: defaultdict[tuple[int, int], defaultdict[Instrument, list[bytes]]] = defaultdict(
            lambda: defaultdict(list)
        )

    def _put(self, instrument: Instrument, service: int, pods: Ints, rows: list[bytes]) -> None:
        for pod, row in zip(pods.tolist(), rows, strict=True):
            self._points[service, pod][instrument].append(row)

    def _times(self, service: int, pods: Ints) -> dict[str, Bytes]:
        return {
            "start": wire.fixed64(self._meters.start_ns[service, pods]),
            "time": wire.fixed64(np.full(len(pods), self._time_ns)),
        }

    def _number(
        self, instrument: Instrument, service: int, values: Ints | Floats, pairs: tuple[Attribute, ...] = ()
    ) -> None:
        """Add one point for every pod of the service."""
        pods = np.arange(self._shop.pods)
        columns = self._times(service, pods)
        whole = np.issubdtype(values.dtype, np.integer)
        columns["value"] = wire.fixed64(values.astype(np.int64)) if whole else wire.doubles(values.astype(np.float64))
        if instrument.temporality == _DELTA:
            columns["start"] = wire.fixed64(np.full(len(pods), self._last_ns))
        template = _number_template(pairs, bool(whole), instrument.kind == "sum")
        self._put(instrument, service, pods, template.fill(len(pods), columns))

    def add_timers(self) -> None:
        meters = self._meters
        counts = meters.buckets.sum(axis=2)
        for series, at in SERVER_SERIES.items():
            for exemplary in (False, True):
                chosen = (counts[at] > 0) & (meters.exemplars.present[at] == exemplary)
                pods = np.flatnonzero(chosen)
                if len(pods):
                    rows = _histogram_template(series, exemplary).fill(
                        len(pods), self._timer_columns(series, at, pods, counts)
                    )
                    self._put(_TIMERS[series.metric], series.service, pods, rows)

    def _timer_columns(self, series: Series, at: int, pods: Ints, counts: Ints) -> Mapping[str, Bytes]:
        meters, exemplars = self._meters, self._meters.exemplars
        return self._times(series.service, pods) | {
            "total": wire.fixed64(counts[at, pods]),
            "sum": wire.doubles(meters.sum_s[at, pods]),
            "minimum": wire.doubles(meters.min_s[at, pods]),
            "maximum": wire.doubles(meters.max_s[at, pods]),
            "buckets": wire.fixed64(meters.buckets[at, pods]),
            "trace_id": exemplars.trace_id[at, pods],
            "span_id": exemplars.span_id[at, pods],
            "value": wire.doubles(exemplars.value_s[at, pods]),
            "event_time": wire.fixed64(exemplars.time_ns[at, pods]),
        }

    def add_queries(self) -> None:
        """Add exponential histograms, one by one: their buckets are varints of any length, and they are few."""
        meters = self._meters
        counts = meters.queries.sum(axis=2)
        for series, at in QUERY_SERIES.items():
            pairs = attributes(series.attributes)
            for pod in np.flatnonzero(counts[at]).tolist():
                used = np.flatnonzero(meters.queries[at, pod])
                low, high = int(used[0]), int(used[-1]) + 1
                point = pb.ExponentialHistogramDataPoint(
                    attributes=pairs,
                    start_time_unix_nano=int(meters.start_ns[series.service, pod]),
                    time_unix_nano=self._time_ns,
                    count=int(counts[at, pod]),
                    sum=float(meters.query_sum_s[at, pod]),
                    scale=SCALE,
                )
                point.positive.offset = low + EXPONENTIAL_LOW
                point.positive.bucket_counts.extend(meters.queries[at, pod, low:high].tolist())
                row = field(1, point.SerializeToString())
                self._points[series.service, pod][QUERIES].append(row)

    def add_processes(self) -> None:
        meters, random, pods = self._meters, self._random, self._shop.pods
        for service in range(len(SERVICES)):
            for outcome, name in enumerate(("success", "error")):
                self._number(REQUESTS, service, meters.answered[service, :, outcome], (("shop.outcome", name),))
            age_s = (self._time_ns - meters.start_ns[service]) / NS_PER_S
            handled = meters.answered[service].sum(axis=1)
            # A process uses about half a per cent of a core when idle, and two milliseconds per request.
            user_s = 0.004 * age_s + 0.002 * handled
            self._number(CPU, service, user_s, (("cpu.mode", "user"),))
            self._number(CPU, service, user_s * 0.3, (("cpu.mode", "system"),))
            self._number(UTILIZATION, service, np.clip(random.normal(0.2 + user_s / (age_s + 1), 0.05), 0.01, 0.99))
            if service in _HTTP_SERVICES:
                self._number(ACTIVE, service, random.poisson(2.0 + meters.busy_s[service] / (age_s + 1)))
            # Processes leak memory slowly until they restart.
            self._number(
                MEMORY, service, (180_000_000 + 3_000 * age_s + random.integers(0, 2 << 20, pods)).astype(np.int64)
            )
            if service in _QUERYING_SERVICES:
                used = random.integers(0, 12, pods)
                self._number(POOL, service, used, (("db.client.connection.state", "used"),))
                self._number(POOL, service, 12 - used, (("db.client.connection.state", "idle"),))
            if SERVICES[service].language == "go":
                self._add_gc(service, age_s)

    def _add_gc(self, service: int, age_s: Floats) -> None:
        """Add garbage collector pauses: one every two seconds, half a millisecond on average."""
        pods = np.arange(self._shop.pods)
        count = (age_s / 2.0).astype(np.int64)
        columns = self._times(service, pods) | {
            "total": wire.fixed64(count),
            "sum": wire.doubles(count.astype(np.float64) * 0.0005),
        }
        self._put(GC, service, pods, _summary_template().fill(len(pods), columns))

    def add_business(self) -> None:
        self._number(REVENUE, INDEX["checkout"], self._meters.revenue, (("shop.currency", "EUR"),))
        topic: tuple[Attribute, ...] = (("messaging.destination.name", "orders.placed"),)
        for name in ("email", "shipping"):
            failing = self._shop.release_failure_share(INDEX[name], self._time_ns / NS_PER_S)
            self._number(QUEUE, INDEX[name], self._random.poisson(3 + 400 * failing, self._shop.pods), topic)

    def batches(self) -> Iterator[Batch]:
        pieces: list[bytes] = []
        counts, resources = Counter[str](), 0
        time_s = (self._time_ns - 1) // NS_PER_S
        for (service, pod), instruments in sorted(self._points.items()):
            metrics: list[bytes] = []
            for instrument, rows in instruments.items():
                points = b"".join(rows) + _tail(instrument)
                metrics.append(field(2, _head(instrument) + field(_KIND_FIELD[instrument.kind], points)))
                counts[instrument.kind] += len(rows)
            pieces += wire.block(self._shop.resource(service, pod, time_s), _scope(), metrics)
            resources += 1
            if counts.total() >= BATCH_RECORDS:
                yield Batch("metrics", b"".join(pieces), counts.total(), resources, dict(counts))
                pieces, counts, resources = [], Counter[str](), 0
        if pieces:
            yield Batch("metrics", b"".join(pieces), counts.total(), resources, dict(counts))


_head = cache(Instrument.head)
_tail = cache(Instrument.tail)


@cache
def _scope() -> bytes:
    return field(1, InstrumentationScope(name="shop.meter", version="2.1.0").SerializeToString())


@cache
def _number_template(pairs: tuple[Attribute, ...], whole: bool, since: bool) -> RecordTemplate:
    point = pb.NumberDataPoint(attributes=attributes(pairs), time_unix_nano=fixed_sentinel("time"))
    if since:
        point.start_time_unix_nano = fixed_sentinel("start")
    if whole:
        point.as_int = fixed_sentinel("value")
    else:
        point.as_double = wire.double_sentinel("value")
    return RecordTemplate(pb.Gauge(data_points=[point]).SerializeToString())


@cache
def _histogram_template(series: Series, exemplary: bool) -> RecordTemplate:
    point = pb.HistogramDataPoint(
        attributes=attributes(series.attributes),
        start_time_unix_nano=fixed_sentinel("start"),
        time_unix_nano=fixed_sentinel("time"),
        count=fixed_sentinel("total"),
        sum=wire.double_sentinel("sum"),
        min=wire.double_sentinel("minimum"),
        max=wire.double_sentinel("maximum"),
        bucket_counts=_BUCKETS_SENTINEL,
        explicit_bounds=BOUNDS_S,
    )
    if exemplary:
        point.exemplars.add(
            time_unix_nano=fixed_sentinel("event_time"),
            as_double=wire.double_sentinel("value"),
            trace_id=wire.field_sentinel("trace_id"),
            span_id=wire.field_sentinel("span_id"),
        )
    buckets = struct.pack(f"<{len(_BUCKETS_SENTINEL)}Q", *_BUCKETS_SENTINEL)
    return RecordTemplate(pb.Histogram(data_points=[point]).SerializeToString(), {"buckets": buckets})


@cache
def _summary_template() -> RecordTemplate:
    point = pb.SummaryDataPoint(
        start_time_unix_nano=fixed_sentinel("start"),
        time_unix_nano=fixed_sentinel("time"),
        count=fixed_sentinel("total"),
        sum=wire.double_sentinel("sum"),
    )
    for quantile in QUANTILES:
        point.quantile_values.add(quantile=quantile, value=0.0002 + 0.0008 * quantile**4)
    return RecordTemplate(pb.Summary(data_points=[point]).SerializeToString())
