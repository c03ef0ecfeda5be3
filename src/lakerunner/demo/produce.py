"""Writing the shop's telemetry into a bucket: a past range as fast as can be, or the present at a chosen rate.

A backfill and a live run of the same seed tell of the same shop. All of a request lies in the slot that is written
with it, so a backfill's records lie in its range.
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
#: The fastest level: a demo must not spend its time on the last per cent.
_GZIP_LEVEL = 1


class Store(Protocol):
    """Where objects go."""

    def put(self, key: str, body: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """One object that was put: the ground truth of what must be found in the lake."""

    key: str
    signal: str
    #: Log records, spans or data points.
    records: int
    #: Pods that it speaks of: for metrics, each is also a row of `target_info` in the lake.
    resources: int
    size_bytes: int
    #: Until when the shop's story is told with it.
    until_ns: int
    #: Data points by kind, for metrics.
    by_kind: dict[str, int]


@dataclass(slots=True)
class Tally:
    """Everything that was put, by signal. The objects one by one go to the callback."""

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
    """Whose shop it is, and where it writes. `rate`: log records a second, as the day's mean."""

    store: Store
    rate: float
    seed: int = 0
    prefix: str = RAW_PREFIX
    signals: Sequence[str] = ALL_SIGNALS
    gzipped: bool = True
    progress: Progress | None = None

    def backfill(self, time_range: TimeRange, stop: Stop | None = None) -> Tally:
        """Tell of the past. Stops early, at the end of a slot, when asked to."""
        shop = Shop(self.seed, self.rate)
        tally = Tally()
        story = _Story(shop, time_range.start_ns, self.signals)
        for slot in slots(time_range.start_ns, time_range.end_ns, shop.slot_s):
            if stop:
                break
            self._write(shop, story, slot, tally)
        return tally

    def live(self, stop: Stop, every_s: int = 2, now_ns: Callable[[], int] = time.time_ns) -> Tally:
        """Tell of the present until told to stop: one object a signal every so often, after the fact.

        Where the store is too slow for the rate, it falls behind and says everything later; nothing is left out.
        """
        if every_s not in SLOTS_S:
            raise BadInput(f"cannot write every {every_s} s", hint=f"choose one of {', '.join(map(str, SLOTS_S))}")
        shop = Shop(self.seed, self.rate)
        tally = Tally()
        width_ns = every_s * NS_PER_S
        begin_ns = now_ns() // width_ns * width_ns
        story = _Story(shop, begin_ns, self.signals)
        while not stop.wait(max(0, begin_ns + width_ns - now_ns()) / NS_PER_S):
            self._write(shop, story, Slot(begin_ns, begin_ns + width_ns), tally)
            begin_ns += width_ns
        return tally

    def _write(self, shop: Shop, story: _Story, slot: Slot, tally: Tally) -> None:
        parts: Counter[str] = Counter()
        for batch in story.tell(slot):
            number = shop.number(self.rate, batch.signal, slot.start_ns, slot.end_ns, parts[batch.signal])
            parts[batch.signal] += 1
            key = raw_key(self.prefix, batch.signal, slot.end_ns - 1, number, self.gzipped)
            body = gzip.compress(batch.payload, _GZIP_LEVEL, mtime=0) if self.gzipped else batch.payload
            self.store.put(key, body)
            sent = Sent(key, batch.signal, batch.records, batch.resources, len(body), slot.end_ns, dict(batch.by_kind))
            tally.add(sent)
            if self.progress is not None:
                self.progress(sent)


class _Story:
    """The signals of consecutive slots."""

    def __init__(self, shop: Shop, begin_ns: int, signals: Sequence[str]) -> None:
        self._shop, self._begin_ns = shop, begin_ns
        self._requests_per_s = requests_per_s(shop)
        exporter = Exporter(shop, begin_ns)
        tellers: dict[str, Callable[[Traffic], Iterator[Batch]]] = {
            "logs": lambda told: encode_logs(shop, told),
            "metrics": exporter.encode,
            "traces": lambda told: encode_traces(shop, told),
        }
        self._tellers = [tellers[signal_named(name).name] for name in signals]

    def tell(self, slot: Slot) -> Iterator[Batch]:
        told = traffic(self._shop, slot, self._requests_per_s, self._begin_ns)
        for teller in self._tellers:
            yield from teller(told)


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
    """Write the telemetry of a past range as fast as can be."""
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
    """Write the telemetry of the present until told to stop."""
    return Producer(store, rate, seed, prefix, signals, gzipped, progress).live(stop, every_s)


def batches(signal: str, seed: int, start_ns: int, end_ns: int, rate: float) -> Iterator[bytes]:
    """The export requests of one signal, encoded and not compressed: a pure function of its arguments."""
    for batch in counted_batches(signal, seed, start_ns, end_ns, rate):
        yield batch.payload


def counted_batches(signal: str, seed: int, start_ns: int, end_ns: int, rate: float) -> Iterator[Batch]:
    """The same with the number of records in each."""
    shop = Shop(seed, rate)
    story = _Story(shop, start_ns, (signal,))
    for slot in slots(start_ns, end_ns, shop.slot_s):
        yield from story.tell(slot)


def slots(start_ns: int, end_ns: int, width_s: int) -> Iterator[Slot]:
    """The range in slots that are aligned to the clock; the first and the last may be shorter."""
    width_ns = width_s * NS_PER_S
    while start_ns < end_ns:
        stop_ns = min(start_ns - start_ns % width_ns + width_ns, end_ns)
        yield Slot(start_ns, stop_ns)
        start_ns = stop_ns


def raw_key(prefix: str, signal: str, time_ns: int, number: int, gzipped: bool) -> str:
    """Where a collector's S3 exporter would put it.

    >>> raw_key("otel-raw", "logs", 1_700_000_000 * NS_PER_S, 7, True)
    'otel-raw/year=2023/month=11/day=14/hour=22/minute=13/logs_7.binpb.gz'
    """
    minute = dt.datetime.fromtimestamp(time_ns // NS_PER_S, dt.UTC).strftime(
        "year=%Y/month=%m/day=%d/hour=%H/minute=%M"
    )
    return f"{prefix.rstrip('/')}/{minute}/{signal}_{number}.binpb{'.gz' if gzipped else ''}"
