"""Encode the shop's logs: lines written for requests, and between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs, SeverityNumber

from lakerunner.demo import wire
from lakerunner.demo.batch import BATCH_RECORDS, Batch
from lakerunner.demo.journeys import JOURNEYS
from lakerunner.demo.log_lines import BACKGROUND, LogLine, Severity, expected, lines_of_step
from lakerunner.demo.shop import SERVICES, Shop, Slot
from lakerunner.demo.traffic import Columns, Group, Traffic
from lakerunner.demo.wire import Bytes, Ints, RecordTemplate, Varying, attributes, field, fixed_sentinel
from lakerunner.model.time import NS_PER_MS, NS_PER_S

#: Share of all records that do not belong to a request.
_BACKGROUND_SHARE = 0.08
#: Maximum delay between writing a record and its observation by the collector.
_OBSERVED_MOST_NS = 5 * NS_PER_MS
_SAMPLED = 1


@cache
def logs_per_request() -> float:
    """Return the mean number of records per successful request, weighted over all journeys."""
    total = 0.0
    for journey in JOURNEYS:
        made = sum(map(expected, journey.variants[0].steps))
        made += sum(expected(step) for follower in journey.followers for step in follower.variants[0].steps)
        total += journey.weight * made
    return total / sum(journey.weight for journey in JOURNEYS)


def requests_per_s(shop: Shop) -> float:
    """Return the request rate that results in the shop's rate of log records."""
    return shop.rate * (1.0 - _BACKGROUND_SHARE) / logs_per_request()


def encode_logs(shop: Shop, traffic: Traffic) -> Iterator[Batch]:
    """Encode the log records of a slot."""
    records = _Records()
    random = shop.random("logs", traffic.slot.start_ns)
    for group in traffic.groups:
        for at, step in enumerate(group.steps):
            for line in lines_of_step(step):
                records.add_step(group, at, line, random)
    records.add_background(shop, traffic.slot, random)
    records.add_starts(shop, traffic.slot)
    yield from records.batches(shop, traffic.slot)


class _Records:
    """Collects encoded records with the pod and the time of each."""

    def __init__(self) -> None:
        self._rows: list[bytes] = []
        self._owner: list[Ints] = []
        self._time_ns: list[Ints] = []

    def _add(self, rows: list[bytes], service: int, pod: Ints, time_ns: Ints) -> None:
        self._rows.extend(rows)
        self._owner.append((service << 16) + pod)
        self._time_ns.append(time_ns)

    def add_step(self, group: Group, at: int, line: LogLine, random: np.random.Generator) -> None:
        duration_ns = group.duration_ns[:, at]
        if line.slower_than_ns:
            rows = np.flatnonzero(duration_ns > line.slower_than_ns)
        elif line.share < 1.0:
            rows = np.flatnonzero(random.random(group.size) < line.share)
        else:
            rows = np.arange(group.size)
        if not len(rows):
            return
        time_ns = group.start_ns[rows, at] + (duration_ns[rows] * line.at).astype(np.int64)
        service = group.steps[at].service
        columns = _Overlay(group.columns, rows)
        columns["span_id"] = group.span_id[rows, at]
        columns["seconds"] = _seconds(duration_ns[rows])
        self._add(_fill(line, True, time_ns, columns, random), service, group.pod[rows, service], time_ns)

    def add_background(self, shop: Shop, slot: Slot, random: np.random.Generator) -> None:
        wanted = shop.rate * slot.seconds * shop.busyness(slot.start_ns) * _BACKGROUND_SHARE
        shares = np.array([line.share for line in BACKGROUND for _ in SERVICES])
        counts = random.multinomial(random.poisson(wanted), shares / shares.sum()).tolist()
        for at, count in enumerate(counts):
            if not count:
                continue
            line, service = BACKGROUND[at // len(SERVICES)], at % len(SERVICES)
            time_ns = random.integers(slot.start_ns, slot.end_ns, count)
            random_bits = random.integers(0, 1 << 62, (count, 2))
            columns = Columns(np.zeros((count, 16), dtype=np.uint8), random_bits)
            columns["seconds"] = _seconds(random_bits[:, 0] % NS_PER_S)
            pod = random.integers(0, shop.pods, count)
            self._add(_fill(line, False, time_ns, columns, random), service, pod, time_ns)

    def add_starts(self, shop: Shop, slot: Slot) -> None:
        """Add a line for each pod whose process starts in the slot."""
        last_s = (slot.end_ns - 1) // NS_PER_S
        for service, spec in enumerate(SERVICES):
            for pod in range(shop.pods):
                started_ns = shop.started_s(service, pod, last_s) * NS_PER_S
                if started_ns < slot.start_ns:
                    continue
                version = shop.version(service, shop.release(service, pod, last_s))
                line = LogLine(Severity.INFO, f"starting {spec.name} {version}", (("shop.release", version),))
                record = _prototype(line, False)
                record.time_unix_nano = record.observed_time_unix_nano = started_ns
                row = ScopeLogs(log_records=[record]).SerializeToString()
                self._add([row], service, np.array([pod]), np.array([started_ns]))

    def batches(self, shop: Shop, slot: Slot) -> Iterator[Batch]:
        if not self._rows:
            return
        owner, time_ns = np.concatenate(self._owner), np.concatenate(self._time_ns)
        time_s = (slot.end_ns - 1) // NS_PER_S
        for part in wire.grouped(self._rows, owner, time_ns, BATCH_RECORDS):
            pieces: list[bytes] = []
            for owner_id, rows in part:
                service, pod = owner_id >> 16, owner_id & 0xFFFF
                pieces += wire.block(shop.resource(service, pod, time_s), _scope(service), rows)
            yield Batch("logs", b"".join(pieces), sum(len(rows) for _, rows in part), len(part))


class _Overlay(Columns):
    """The columns of selected rows of a group."""

    def __init__(self, columns: Columns, rows: Ints) -> None:
        super().__init__(columns["trace_id"][rows], columns.random_bits)
        self._whole, self._rows = columns, rows

    def __missing__(self, name: str) -> Bytes:
        return self._whole[name][self._rows]


def _fill(line: LogLine, traced: bool, time_ns: Ints, columns: Columns, random: np.random.Generator) -> list[bytes]:
    columns["time"] = wire.fixed64(time_ns)
    columns["observed"] = wire.fixed64(time_ns + random.integers(0, _OBSERVED_MOST_NS, len(time_ns)))
    return _template(line, traced).fill(len(time_ns), columns)


def _seconds(duration_ns: Ints) -> Bytes:
    """Format as `1.234`. Requests take less than ten seconds, so it is always five characters."""
    text = wire.digits(np.minimum(duration_ns // NS_PER_MS, 9_999), 4)
    out = np.full((len(text), 5), ord("."), dtype=np.uint8)
    out[:, 0], out[:, 2:] = text[:, 0], text[:, 1:]
    return out


@cache
def _template(line: LogLine, traced: bool) -> RecordTemplate:
    return RecordTemplate(ScopeLogs(log_records=[_prototype(line, traced)]).SerializeToString())


def _prototype(line: LogLine, traced: bool) -> LogRecord:
    record = LogRecord(
        time_unix_nano=fixed_sentinel("time"),
        observed_time_unix_nano=fixed_sentinel("observed"),
        severity_number=SeverityNumber.ValueType(line.severity.value),
        severity_text=line.severity.name,
        body=_body(line.body),
        attributes=attributes(line.attributes),
    )
    if traced:
        record.flags = _SAMPLED
        record.trace_id = wire.field_sentinel("trace_id")
        record.span_id = wire.field_sentinel("span_id")
    return record


def _body(body: str | Mapping[str, str | int | Varying]) -> AnyValue:
    if isinstance(body, str):
        return wire.any_value(body)
    return AnyValue(kvlist_value=KeyValueList(values=attributes(body.items())))


@cache
def _scope(service: int) -> bytes:
    name = f"shop.{SERVICES[service].name}.log"
    return field(1, InstrumentationScope(name=name, version="2.1.0").SerializeToString())
