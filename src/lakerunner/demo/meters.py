"""What the shop's processes have counted since they started: the state behind its metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from lakerunner.demo.calls import Kind
from lakerunner.demo.journeys import JOURNEYS
from lakerunner.demo.shop import INDEX, SERVICES, Shop
from lakerunner.demo.steps import Step
from lakerunner.demo.traffic import Group, Traffic
from lakerunner.demo.wire import Attribute, Bytes, Floats, Ints
from lakerunner.model.time import NS_PER_S

#: The bounds that the semantic conventions advise for http.server.request.duration.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
#: Bucket bounds grow by 2^(1/8), about nine per cent.
SCALE = 3
#: From a microsecond to sixteen seconds. Values outside are counted in the first or last bucket.
EXPONENTIAL_LOW, EXPONENTIAL_WIDTH = -20 << SCALE, 24 << SCALE


@dataclass(frozen=True, slots=True)
class Series:
    """The service, metric and attributes of one timer."""

    service: int
    metric: str
    attributes: tuple[Attribute, ...]


def server_series(step: Step) -> Series:
    """Return the timer that counts a served request."""
    error: tuple[Attribute, ...] = (("error.type", step.failure.type),) if step.failure and step.is_error else ()
    if step.protocol == "http":
        method, route = step.name.split()
        pairs: tuple[Attribute, ...] = (
            ("http.request.method", method),
            ("http.route", route),
            ("http.response.status_code", step.status),
            ("url.scheme", "https"),
        )
        return Series(step.service, "http.server.request.duration", pairs + error)
    api, method = step.name.split("/")
    rpc: tuple[Attribute, ...] = (("rpc.system", "grpc"), ("rpc.service", api), ("rpc.method", method))
    return Series(step.service, "rpc.server.call.duration", (*rpc, ("rpc.grpc.status_code", step.status), *error))


def query_series(step: Step) -> Series:
    """Return the timer that counts a database query."""
    system = next(value for key, value in step.attributes if key == "db.system.name")
    operation, target = step.name.split()
    pairs: tuple[Attribute, ...] = (
        ("db.system.name", system),
        ("db.operation.name", operation),
        ("db.collection.name", target),
    )
    return Series(step.service, "db.client.operation.duration", pairs)


def _all_steps() -> Iterable[Step]:
    journeys = [*JOURNEYS, *(follower for journey in JOURNEYS for follower in journey.followers)]
    return (step for journey in journeys for variant in journey.variants for step in variant.steps)


#: The number of every timer, and the timer of every step.
SERVER_SERIES: dict[Series, int] = {}
QUERY_SERIES: dict[Series, int] = {}
_SERVER_OF: dict[Step, int] = {}
_QUERY_OF: dict[Step, int] = {}
for _step in _all_steps():
    if _step.kind is Kind.SERVER:
        _SERVER_OF[_step] = SERVER_SERIES.setdefault(server_series(_step), len(SERVER_SERIES))
    elif _step.protocol == "db":
        _QUERY_OF[_step] = QUERY_SERIES.setdefault(query_series(_step), len(QUERY_SERIES))


@dataclass
class Exemplars:
    """The last request of the interval, for each server series and pod."""

    trace_id: Bytes
    span_id: Bytes
    value_s: Floats
    time_ns: Ints
    present: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    @classmethod
    def none(cls, pods: int) -> Exemplars:
        shape = (len(SERVER_SERIES), pods)
        return cls(
            np.zeros((*shape, 16), dtype=np.uint8),
            np.zeros((*shape, 8), dtype=np.uint8),
            np.zeros(shape),
            np.zeros(shape, dtype=np.int64),
            np.zeros(shape, dtype=np.bool_),
        )


@dataclass
class Meters:
    """Counts by series and pod. A restarted process starts at zero."""

    shop: Shop
    begin_ns: int
    buckets: Ints = field(init=False)
    sum_s: Floats = field(init=False)
    min_s: Floats = field(init=False)
    max_s: Floats = field(init=False)
    queries: Ints = field(init=False)
    query_sum_s: Floats = field(init=False)
    #: By service and pod: successful and failed requests.
    answered: Ints = field(init=False)
    busy_s: Floats = field(init=False)
    #: By pod of the checkout service: value of orders since the last export.
    revenue: Floats = field(init=False)
    start_ns: Ints = field(init=False)
    exemplars: Exemplars = field(init=False)

    def __post_init__(self) -> None:
        pods = self.shop.pods
        shape = (len(SERVER_SERIES), pods)
        self.buckets = np.zeros((*shape, len(BOUNDS_S) + 1), dtype=np.int64)
        self.sum_s, self.min_s, self.max_s = np.zeros(shape), np.full(shape, np.inf), np.zeros(shape)
        self.queries = np.zeros((len(QUERY_SERIES), pods, EXPONENTIAL_WIDTH), dtype=np.int64)
        self.query_sum_s = np.zeros((len(QUERY_SERIES), pods))
        self.answered = np.zeros((len(SERVICES), pods, 2), dtype=np.int64)
        self.busy_s = np.zeros((len(SERVICES), pods))
        self.revenue = np.zeros(pods)
        self.start_ns = np.zeros((len(SERVICES), pods), dtype=np.int64)
        self.exemplars = Exemplars.none(pods)

    def begin(self, time_ns: int) -> None:
        """Reset the counts of processes that started since the last call, and what was exported as a delta."""
        time_s = (time_ns - 1) // NS_PER_S
        started_ns = np.array(
            [
                [
                    max(self.shop.started_s(service, pod, time_s) * NS_PER_S, self.begin_ns)
                    for pod in range(self.shop.pods)
                ]
                for service in range(len(SERVICES))
            ],
            dtype=np.int64,
        )
        fresh = started_ns != self.start_ns
        self.start_ns = started_ns
        self.exemplars.present[:] = False
        self.revenue[:] = 0.0
        if not fresh.any():
            return
        self.answered[fresh] = 0
        self.busy_s[fresh] = 0.0
        servers = fresh[[series.service for series in SERVER_SERIES]]
        self.buckets[servers], self.sum_s[servers] = 0, 0.0
        self.min_s[servers], self.max_s[servers] = np.inf, 0.0
        queries = fresh[[series.service for series in QUERY_SERIES]]
        self.queries[queries], self.query_sum_s[queries] = 0, 0.0

    def count(self, traffic: Traffic, from_ns: int, to_ns: int) -> None:
        """Count the requests that ended in the interval. Those that ended outside of the slot count at its edges."""
        first, last = from_ns <= traffic.slot.start_ns, to_ns >= traffic.slot.end_ns
        for group in traffic.groups:
            whole = group.end_ns(0)
            rows = np.flatnonzero(((whole >= from_ns) | first) & ((whole < to_ns) | last))
            if len(rows):
                self._count_group(group, rows)

    def _count_group(self, group: Group, rows: Ints) -> None:
        for at, step in enumerate(group.steps):
            pod = group.pod[rows, step.service]
            took_s = group.duration_ns[rows, at] / NS_PER_S
            if step.kind is Kind.SERVER:
                self._count_served(group, rows, at, pod, took_s)
            elif step.protocol == "db":
                self._count_query(_QUERY_OF[step], pod, took_s)
            if step.kind in (Kind.SERVER, Kind.CONSUMER):
                self.answered[step.service, :, int(step.is_error)] += np.bincount(pod, minlength=self.shop.pods)
                self.busy_s[step.service] += np.bincount(pod, took_s, minlength=self.shop.pods)
            if step.service == INDEX["checkout"] and step.kind is Kind.SERVER and step.failure is None:
                self.revenue += np.bincount(pod, group.columns.cents[rows] / 100.0, minlength=self.shop.pods)

    def _count_served(self, group: Group, rows: Ints, at: int, pod: Ints, took_s: Floats) -> None:
        series, width = _SERVER_OF[group.steps[at]], len(BOUNDS_S) + 1
        bucket = np.searchsorted(BOUNDS_S, took_s, side="left")
        flat = np.bincount(pod * width + bucket, minlength=self.shop.pods * width)
        self.buckets[series] += flat.reshape(self.shop.pods, width)
        self.sum_s[series] += np.bincount(pod, took_s, minlength=self.shop.pods)
        np.minimum.at(self.min_s[series], pod, took_s)
        np.maximum.at(self.max_s[series], pod, took_s)
        kept = self.exemplars
        # If a pod occurs twice, the last assignment wins.
        kept.trace_id[series, pod] = group.columns["trace_id"][rows]
        kept.span_id[series, pod] = group.span_id[rows, at]
        kept.value_s[series, pod] = took_s
        kept.time_ns[series, pod] = group.end_ns(at)[rows]
        kept.present[series, pod] = True

    def _count_query(self, series: int, pod: Ints, took_s: Floats) -> None:
        # Bucket i holds values above 2^(i/8) up to 2^((i+1)/8).
        exact = np.ceil(np.log2(np.maximum(took_s, 1e-9)) * (1 << SCALE)).astype(np.int64) - 1
        bucket = np.clip(exact - EXPONENTIAL_LOW, 0, EXPONENTIAL_WIDTH - 1)
        flat = np.bincount(pod * EXPONENTIAL_WIDTH + bucket, minlength=self.shop.pods * EXPONENTIAL_WIDTH)
        self.queries[series] += flat.reshape(self.shop.pods, EXPONENTIAL_WIDTH)
        self.query_sum_s[series] += np.bincount(pod, took_s, minlength=self.shop.pods)
