"""The producer writes the same bytes for the same seed, under a collector's keys, and counts every record."""

import gzip
import re
import time
import uuid
from collections import Counter
from itertools import pairwise

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.demo.produce import Producer, backfill, batches, counted_batches, raw_key, slots
from lakerunner.model.errors import BadInput
from lakerunner.model.signals import signal_named
from lakerunner.model.time import NS_PER_S
from lakerunner.runtime.stop import Stop
from lakerunner.store.config import StoreConfig
from lakerunner.store.keys import RawKey, parse_raw, raw_prefix
from lakerunner.store.open import open_store
from tests.demo.requests import RATE, SEED, START_NS, logs, points, requests, spans

READERS = {"logs": logs, "metrics": points, "traces": spans}
REQUESTS = {
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "traces": ExportTraceServiceRequest,
}
END_NS = START_NS + 130 * NS_PER_S


class Folder(dict):
    """A bucket in memory that accepts each key once."""

    def put(self, key, body):
        assert key not in self
        self[key] = body


def fill(**options):
    folder, sent = Folder(), []
    tally = backfill(folder, START_NS, END_NS, RATE, seed=SEED, progress=sent.append, **options)
    return folder, sent, tally


@pytest.mark.parametrize("signal", READERS)
def test_the_same_seed_and_range_give_the_same_bytes(signal):
    assert requests(signal, 60) == requests(signal, 60)
    assert requests(signal, 60) != requests(signal, 60, seed=SEED + 1)


def test_the_bytes_of_a_backfill_are_those_of_batches_and_of_its_other_run():
    folder, sent, _ = fill()
    assert fill()[0] == folder
    for signal in READERS:
        payloads = [gzip.decompress(folder[one.key]) for one in sent if one.signal == signal]
        assert payloads == list(batches(signal, SEED, START_NS, END_NS, RATE))


@pytest.mark.parametrize("gzipped", [True, False])
def test_what_was_sent_is_what_lies_in_the_bucket(gzipped):
    folder, sent, tally = fill(gzipped=gzipped)
    assert [one.key for one in sent] == list(folder)
    counts = Counter()
    for one in sent:
        body = folder[one.key]
        assert one.size_bytes == len(body)
        payload = gzip.decompress(body) if gzipped else body
        read = sum(1 for _ in READERS[one.signal]([payload]))
        assert read == one.records
        assert one.resources == len(REQUESTS[one.signal].FromString(payload).ListFields()[0][1])
        counts[one.signal] += read
    assert tally.records == counts and counts.keys() == READERS.keys()
    assert tally.points_by_kind.total() == counts["metrics"]
    assert tally.objects.total() == len(folder)


def test_keys_are_those_of_a_collectors_exporter():
    folder, _, _ = fill(prefix="otel-raw/acme/eu/")
    form = r"otel-raw/acme/eu/year=\d{4}/month=\d\d/day=\d\d/hour=\d\d/minute=\d\d/(logs|metrics|traces)_\d+\.binpb\.gz"
    assert all(re.fullmatch(form, key) for key in folder)
    assert raw_key("p", "traces", 1_700_000_000 * NS_PER_S, 1, False).endswith("/hour=22/minute=13/traces_1.binpb")


def test_only_the_signals_asked_for_are_written_and_they_do_not_change():
    whole, _, _ = fill()
    part, _, tally = fill(signals=("traces",))
    assert part == {key: body for key, body in whole.items() if "/traces_" in key}
    assert tally.records.keys() == {"traces"}
    with pytest.raises(BadInput, match="cannot find a signal"):
        fill(signals=("spans",))


def test_a_stopped_backfill_ends():
    stop = Stop()
    folder = Folder()
    tally = backfill(folder, START_NS, END_NS, RATE, progress=lambda _: stop.request(), stop=stop)
    assert {one.split("minute=")[1][:2] for one in folder} == {folder.popitem()[0].split("minute=")[1][:2]}
    assert tally.records["logs"] > 0


def test_slots_are_aligned_and_cover_the_range():
    start_ns, end_ns = START_NS + 7 * NS_PER_S + 5, END_NS + 3
    made = list(slots(start_ns, end_ns, 60))
    assert made[0].start_ns == start_ns and made[-1].end_ns == end_ns
    assert all(one.end_ns == two.start_ns for one, two in pairwise(made))
    assert all(slot.start_ns % (60 * NS_PER_S) == 0 for slot in made[1:])
    assert list(slots(5, 5, 60)) == []


class Clock(Stop):
    """A stop that is also the clock: waiting advances the time."""

    def __init__(self, start_ns, end_ns):
        super().__init__()
        self.now_ns, self.end_ns = start_ns, end_ns

    def wait(self, timeout_s):
        self.now_ns += int(timeout_s * NS_PER_S)
        return self.now_ns >= self.end_ns


def test_live_writes_one_object_a_signal_after_the_fact_and_never_of_the_future():
    clock, folder, told_at = Clock(START_NS, START_NS + 41 * NS_PER_S), Folder(), []
    producer = Producer(folder, RATE, SEED, progress=lambda sent: told_at.append((sent, clock.now_ns)))
    tally = producer.live(clock, every_s=2, now_ns=lambda: clock.now_ns)
    assert tally.objects == {"logs": 20, "traces": 20, "metrics": 4}
    assert all(sent.until_ns == now_ns for sent, now_ns in told_at)
    expected = 40 * RATE * 1.5
    assert 0.5 * expected < tally.records["logs"] < 1.5 * expected
    for sent, now_ns in told_at[6:]:
        if sent.signal == "traces":
            assert all(s.end_time_unix_nano < now_ns for _, s in spans([gzip.decompress(folder[sent.key])]))


def test_live_refuses_a_period_that_does_not_fit_the_clock():
    with pytest.raises(BadInput, match="cannot write every 7 s"):
        Producer(Folder(), RATE).live(Stop(), every_s=7)


@pytest.mark.slow
def test_it_is_not_the_bottleneck_of_a_benchmark():
    """It generates at least 100,000 log records per CPU second."""
    list(batches("logs", SEED, START_NS, START_NS + NS_PER_S, 30_000.0))
    begun_s = time.process_time()
    made = sum(batch.records for batch in counted_batches("logs", SEED, START_NS, START_NS + 10 * NS_PER_S, 30_000.0))
    assert made / (time.process_time() - begun_s) > 100_000


def test_objects_in_a_real_store_are_known_by_their_keys(tmp_path):
    org_id = uuid.uuid4()
    store, sent = open_store(StoreConfig(url=tmp_path.as_uri())), []
    backfill(store, START_NS, END_NS, RATE, prefix=f"{raw_prefix(org_id)}shop", progress=sent.append)
    for one in sent:
        assert parse_raw(one.key) == RawKey(org_id, "shop", signal_named(one.signal))
        assert len(store.get(one.key)) == one.size_bytes
