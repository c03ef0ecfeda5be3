"""Write the shop's telemetry into a bucket: a past range as fast as possible, or live at a chosen rate.

A backfill and a live run with the same seed simulate the same shop. A request lies entirely within one slot, so the
records of a backfill lie within its range.
"""

from __future__ import annotations

import datetime as dt
import gzip
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lakerunner.demo.batch import Batch
from lakerunner.demo.logs import encode_logs, requests_per_s
from lakerunner.demo.metrics import Exporter
from lakerunner.demo.shop import SLOTS_S, Shop, Slot
from lakerunner.demo.traces import encode_traces
from lakerunner.demo.traffic import Traffic, traffic
from lakerunner.model.errors import BadInput
from lakerunner.model.signals import SIGNALS, signal_named
from lakerunner.model.time import NS_PER_S, TimeRange
from lakerunner.runtime.stop import Stop
from lakerunner.store.keys import RAW_PREFIX

ALL_SIGNALS = tuple(signal.name for signal in SIGNALS)
#: The fastest level: a demo need not save the last per cent of space.
_GZIP_LEVEL = 1


class Store(Protocol):
    """The part of an object store that the producer needs."""

    def put(self, key: str, body: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """One written object: the ground truth of what the lake must contain."""

    key: str
    signal: str
    #: Log records, spans or data points.
    records: int
    #: Number of pods in it. For metrics, each is also a row of `target_info` in the lake.
    resources: int
    size_bytes: int
    #: End of the slot that it covers.
    until_ns: int
    #: For metrics: data points by kind.
    by_kind: dict[str, int]


@dataclass(slots=True)
class Tally:
    """Totals of what was written, by signal. The progress callback receives the single objects."""

    objects: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    size_bytes: Counter[str] = field(default_factory=Counter)
    points_by_kind: Counter[str] = field(default_factory=Counter)

    def add(self, sent: Sent) -> None:
        self.objects[sent.signal] += 1
        self.records[sent.signal] += sent.records
        self.size_bytes[sent.signal] += sent.size_bytes
        self.points_by_kind.update(sent.by_kind)


Progress = Callable[[Sent], None]


@dataclass(frozen=True)
class Producer:
    """Simulates a shop and writes its telemetry to a store. `rate` is log records per second, averaged over a day."""

    store: Store
    rate: float
    seed: int = 0
    prefix: str = RAW_PREFIX
    signals: Sequence[str] = ALL_SIGNALS
    gzipped: bool = True
    progress: Progress | None = None

    def backfill(self, time_range: TimeRange, stop: Stop | None = None) -> Tally:
        """Write a past range. A stop request ends it early, after a whole slot."""
        shop = Shop(self.seed, self.rate)
        tally = Tally()
        encoder = _SlotEncoder(shop, time_range.start_ns, self.signals)
        for slot in slots(time_range.start_ns, time_range.end_ns, shop.slot_s):
            if stop:
                break
            self._write(shop, encoder, slot, tally)
        return tally

    def live(self, stop: Stop, every_s: int = 2, now_ns: Callable[[], int] = time.time_ns) -> Tally:
        """Write the present until a stop request: one object per signal for every `every_s` seconds, after they passed.

        If the store is too slow for the rate, writing falls behind; nothing is left out.
        """
        if every_s not in SLOTS_S:
            raise BadInput(f"cannot write every {every_s} s", hint=f"choose one of {', '.join(map(str, SLOTS_S))}")
        shop = Shop(self.seed, self.rate)
        tally = Tally()
        width_ns = every_s * NS_PER_S
        begin_ns = now_ns() // width_ns * width_ns
        encoder = _SlotEncoder(shop, begin_ns, self.signals)
        while not stop.wait(max(0, begin_ns + width_ns - now_ns()) / NS_PER_S):
            self._write(shop, encoder, Slot(begin_ns, begin_ns + width_ns), tally)
            begin_ns += width_ns
        return tally

    def _write(self, shop: Shop, encoder: _SlotEncoder, slot: Slot, tally: Tally) -> None:
        parts: Counter[str] = Counter()
        for batch in encoder.encode(slot):
            number = shop.number(self.rate, batch.signal, slot.start_ns, slot.end_ns, parts[batch.signal])
            parts[batch.signal] += 1
            key = raw_key(self.prefix, batch.signal, slot.end_ns - 1, number, self.gzipped)
            body = gzip.compress(batch.payload, _GZIP_LEVEL, mtime=0) if self.gzipped else batch.payload
            self.store.put(key, body)
            sent = Sent(key, batch.signal, batch.records, batch.resources, len(body), slot.end_ns, dict(batch.by_kind))
            tally.add(sent)
            if self.progress is not None:
                self.progress(sent)


class _SlotEncoder:
    """Encodes the signals of consecutive slots."""

    def __init__(self, shop: Shop, begin_ns: int, signals: Sequence[str]) -> None:
        self._shop, self._begin_ns = shop, begin_ns
        self._requests_per_s = requests_per_s(shop)
        exporter = Exporter(shop, begin_ns)
        encoders: dict[str, Callable[[Traffic], Iterator[Batch]]] = {
            "logs": lambda requests: encode_logs(shop, requests),
            "metrics": exporter.encode,
            "traces": lambda requests: encode_traces(shop, requests),
        }
        self._encoders = [encoders[signal_named(name).name] for name in signals]

    def encode(self, slot: Slot) -> Iterator[Batch]:
        requests = traffic(self._shop, slot, self._requests_per_s, self._begin_ns)
        for encode in self._encoders:
            yield from encode(requests)


def backfill(
    store: Store,
    start_ns: int,
    end_ns: int,
    rate: float,
    *,
    seed: int = 0,
    prefix: str = RAW_PREFIX,
    signals: Sequence[str] = ALL_SIGNALS,
    gzipped: bool = True,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Tally:
    """Write the telemetry of a past range as fast as possible."""
    producer = Producer(store, rate, seed, prefix, signals, gzipped, progress)
    return producer.backfill(TimeRange(start_ns, end_ns), stop)


def live(
    store: Store,
    rate: float,
    stop: Stop,
    *,
    seed: int = 0,
    prefix: str = RAW_PREFIX,
    signals: Sequence[str] = ALL_SIGNALS,
    gzipped: bool = True,
    every_s: int = 2,
    progress: Progress | None = None,
) -> Tally:
    """Write the telemetry of the present until a stop request."""
    return Producer(store, rate, seed, prefix, signals, gzipped, progress).live(stop, every_s)


def batches(signal: str, seed: int, start_ns: int, end_ns: int, rate: float) -> Iterator[bytes]:
    """Yield the encoded export requests of one signal, uncompressed: a pure function of the arguments."""
    for batch in counted_batches(signal, seed, start_ns, end_ns, rate):
        yield batch.payload


def counted_batches(signal: str, seed: int, start_ns: int, end_ns: int, rate: float) -> Iterator[Batch]:
    """Like `batches`, with the number of records in each."""
    shop = Shop(seed, rate)
    encoder = _SlotEncoder(shop, start_ns, (signal,))
    for slot in slots(start_ns, end_ns, shop.slot_s):
        yield from encoder.encode(slot)


def slots(start_ns: int, end_ns: int, width_s: int) -> Iterator[Slot]:
    """Cut the range into slots aligned to the clock. The first and the last may be shorter."""
    width_ns = width_s * NS_PER_S
    while start_ns < end_ns:
        stop_ns = min(start_ns - start_ns % width_ns + width_ns, end_ns)
        yield Slot(start_ns, stop_ns)
        start_ns = stop_ns


def raw_key(prefix: str, signal: str, time_ns: int, number: int, gzipped: bool) -> str:
    """Return the key that a collector's S3 exporter would use.

    >>> raw_key("otel-raw", "logs", 1_700_000_000 * NS_PER_S, 7, True)
    'otel-raw/year=2023/month=11/day=14/hour=22/minute=13/logs_7.binpb.gz'
    """
    minute = dt.datetime.fromtimestamp(time_ns // NS_PER_S, dt.UTC).strftime(
        "year=%Y/month=%m/day=%d/hour=%H/minute=%M"
    )
    return f"{prefix.rstrip('/')}/{minute}/{signal}_{number}.binpb{'.gz' if gzipped else ''}"
