"""Workers in other processes: each segment is asked of its own worker, and of others when that one fails."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from lakerunner.model.errors import BadInput, Bug, Denied, LakeError, LimitHit, Unavailable
from lakerunner.query.metrics import WORKER_RETRIES
from lakerunner.query.pushdown.done import Done
from lakerunner.query.pushdown.errand import Errand
from lakerunner.query.scan.samples import Samples
from lakerunner.query.worker import wire
from lakerunner.query.worker.addresses import Addresses
from lakerunner.query.worker.answer import Check, Cost, SegmentAnswer, Workers
from lakerunner.query.worker.rendezvous import ranked
from lakerunner.query.worker.request import Kind, ScanRequest, SegmentObjects
from lakerunner.runtime.telemetry import log

_LOOK_S = 0.1
#: A worker that failed is tried last for this long.
_DOWN_S = 10.0
#: A worker that says nothing for this long while it should is taken for dead.
STALL_S = 20.0
_MAX_ASKS = 64
#: Bounds one attempt to connect: an address that nobody answers at all must not use up the query's time.
_OPTIONS = [("grpc.min_reconnect_backoff_ms", 2_000), ("grpc.max_reconnect_backoff_ms", 2_000)]


@dataclass(slots=True, eq=False)
class _Ask:
    """One request to one worker, under way."""

    address: str
    segments: dict[uuid.UUID, SegmentObjects]
    heard_at: float = field(default_factory=time.monotonic)
    reader: Any = None
    given_up: bool = False

    def give_up(self) -> None:
        self.given_up = True
        if self.reader is not None:
            self.reader.cancel()


@dataclass(frozen=True, slots=True)
class _Over:
    """The end of an ask. Segments that it did not answer need another worker."""

    ask: _Ask
    error: LakeError | None


@dataclass(slots=True)
class _Scan:
    """One scan's state: what is under way, and which workers each segment was tried on."""

    request: ScanRequest
    events: queue.SimpleQueue[SegmentAnswer | _Over] = field(default_factory=queue.SimpleQueue)
    asks: list[_Ask] = field(default_factory=list)
    tried: dict[uuid.UUID, list[str]] = field(default_factory=dict)
    open: dict[uuid.UUID, SegmentObjects] = field(default_factory=dict)
    reasons: dict[uuid.UUID, str] = field(default_factory=dict)


class FlightWorkers:
    """Safe to share between threads. `last_resort` scans what no worker could, where that is wanted."""

    def __init__(
        self,
        addresses: Addresses,
        token: str,
        attempts: int = 3,
        last_resort: Workers | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        self._addresses = addresses
        self._token = token
        self._attempts = attempts
        self._last_resort = last_resort
        self._stall_s = stall_s
        self._clients: dict[str, Any] = {}
        self._down: dict[str, float] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_MAX_ASKS, thread_name_prefix="ask")

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        scan = _Scan(request, open={one.segment_id: one for one in request.segments})
        left = self._assign(scan, request.segments)
        try:
            while scan.asks:
                check()
                left += self._watch(scan)
                try:
                    event = scan.events.get(timeout=_LOOK_S)
                except queue.Empty:
                    continue
                if isinstance(event, SegmentAnswer):
                    if self._accepted(scan, event):
                        yield event
                    continue
                left += self._over(scan, event)
        finally:
            for ask in scan.asks:
                ask.give_up()
        yield from self._leftover(scan, left, check)

    def evaluate(self, errand: Errand, check: Check) -> Done | None:
        """The errand done by a worker; None where none can do it, and the asker has to.

        A worker that fails is not the end: the asker scans, and finds out segment by segment what can be read.
        """
        for address in self._owners(errand)[: self._attempts]:
            ask = _Ask(address, {})
            done = self._pool.submit(self._run, errand, ask)
            try:
                while not done.done():
                    check()
                    if time.monotonic() - ask.heard_at > self._stall_s:
                        raise Unavailable(f"cannot read from worker {address}: no word for {self._stall_s:g} s")
                    wait([done], timeout=_LOOK_S)
                return done.result()
            except BadInput:
                # The query's own fault: evaluated by the asker, it says which.
                return None
            except Unavailable as error:
                WORKER_RETRIES.inc()
                log().warning("errand failed", worker=address, reason=str(error))
                self._down[address] = time.monotonic() + _DOWN_S
                self._forget(address)
            finally:
                ask.give_up()
        return None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()
        if self._last_resort is not None:
            self._last_resort.close()

    def _owners(self, errand: Errand) -> list[str]:
        """Workers that are up, those first that have most of the errand's bytes in their care."""
        now = time.monotonic()
        known = [one for one in self._addresses() if self._down.get(one, 0.0) <= now]
        if len(known) < 2:
            return known
        care = dict.fromkeys(known, 0)
        for segment in errand.segments:
            care[ranked(known, errand.org_id, segment.slot)[0]] += segment.size_bytes
        return sorted(known, key=lambda one: care[one], reverse=True)

    # -- who gets what -----------------------------------------------------------------------------------------

    def _assign(self, scan: _Scan, segments: Sequence[SegmentObjects]) -> list[SegmentObjects]:
        """Ask for the segments; return those for which no worker is left."""
        known = self._addresses()
        now = time.monotonic()
        shares: dict[str, dict[uuid.UUID, SegmentObjects]] = {}
        left = []
        for segment in segments:
            tried = scan.tried.setdefault(segment.segment_id, [])
            candidates = [one for one in ranked(known, scan.request.org_id, segment.slot) if one not in tried]
            # Those known to be down come last, but they come.
            candidates.sort(key=lambda one: self._down.get(one, 0.0) > now)
            if not candidates or len(tried) >= self._attempts:
                left.append(segment)
                continue
            if tried:
                WORKER_RETRIES.inc()
            tried.append(candidates[0])
            shares.setdefault(candidates[0], {})[segment.segment_id] = segment
        for address, share in shares.items():
            ask = _Ask(address, share)
            scan.asks.append(ask)
            self._pool.submit(self._ask, scan, ask)
        return left

    def _accepted(self, scan: _Scan, answer: SegmentAnswer) -> bool:
        """Whether this answer counts: a failure is first tried elsewhere, and a late double is dropped."""
        if answer.segment_id not in scan.open:
            return False
        if answer.error is None:
            del scan.open[answer.segment_id]
            return True
        scan.reasons[answer.segment_id] = answer.error
        return False

    def _over(self, scan: _Scan, event: _Over) -> list[SegmentObjects]:
        if event.ask not in scan.asks:
            return []  # Given up before: its segments are asked of others already.
        scan.asks.remove(event.ask)
        if isinstance(event.error, LimitHit):
            raise event.error
        again = [segment for segment_id, segment in event.ask.segments.items() if segment_id in scan.open]
        if event.error is not None:
            self._down[event.ask.address] = time.monotonic() + _DOWN_S
            for segment in again:
                scan.reasons[segment.segment_id] = str(event.error)
        return self._assign(scan, again)

    def _watch(self, scan: _Scan) -> list[SegmentObjects]:
        """Give up on workers that hang: their connection is there, but nothing comes."""
        now = time.monotonic()
        if time.time() > scan.request.deadline_s:
            raise LimitHit("cannot finish the scan: its time is over", hint="narrow the selectors or the time range")
        left = []
        for ask in list(scan.asks):
            if now - ask.heard_at > self._stall_s:
                ask.give_up()
                error = Unavailable(f"cannot read from worker {ask.address}: no word for {self._stall_s:g} s")
                left += self._over(scan, _Over(ask, error))
        return left

    def _leftover(self, scan: _Scan, left: list[SegmentObjects], check: Check) -> Iterator[SegmentAnswer]:
        left = [segment for segment in left if segment.segment_id in scan.open]
        if not left:
            return
        if self._last_resort is not None:
            yield from self._last_resort.scan(scan.request.of_segments(left), check)
            return
        for segment in left:
            reason = scan.reasons.get(segment.segment_id, "no query worker is there")
            yield SegmentAnswer(segment.segment_id, error=f"cannot read segment {segment.segment_id}: {reason}")

    # -- one ask, on a thread of the pool ----------------------------------------------------------------------

    def _ask(self, scan: _Scan, ask: _Ask) -> None:
        error: LakeError | None = None
        try:
            self._read(scan, ask)
        except flight.FlightError as reason:
            error = _ours(reason, ask.address)
        except pa.ArrowException as reason:
            error = Unavailable(f"cannot read from worker {ask.address}: {reason}")
        except LakeError as reason:
            error = reason
        except BaseException as reason:
            error = Bug(f"cannot read from worker {ask.address}: {reason!r}")
            raise
        finally:
            if error is not None:
                self._forget(ask.address)
            scan.events.put(_Over(ask, error))

    def _read(self, scan: _Scan, ask: _Ask) -> None:
        request = scan.request.of_segments(list(ask.segments.values()))
        options = flight.FlightCallOptions(timeout=max(0.1, request.deadline_s - time.time()))
        ask.reader = self._client(ask.address).do_get(flight.Ticket(request.to_ticket(self._token)), options)
        parts: list[Samples] = []
        batches: list[pa.RecordBatch] = []
        while not ask.given_up:
            try:
                chunk = ask.reader.read_chunk()
            except StopIteration:
                return
            ask.heard_at = time.monotonic()
            if chunk.app_metadata is None:
                if request.kind is Kind.SAMPLES:
                    parts.append(wire.from_batch(chunk.data))
                else:
                    batches.append(chunk.data)
                continue
            note = orjson.loads(chunk.app_metadata.to_pybytes())
            table = None if request.kind is Kind.SAMPLES else pa.Table.from_batches(batches, chunk.data.schema)
            answer = SegmentAnswer(uuid.UUID(note["segment"]), tuple(parts), table, Cost(**note["cost"]), note["error"])
            scan.events.put(answer)
            parts, batches = [], []

    def _run(self, errand: Errand, ask: _Ask) -> Done:
        options = flight.FlightCallOptions(timeout=max(0.1, errand.deadline_s - time.time()))
        batches: list[pa.RecordBatch] = []
        try:
            ask.reader = self._client(ask.address).do_get(flight.Ticket(errand.to_ticket(self._token)), options)
            while True:
                chunk = ask.reader.read_chunk()
                ask.heard_at = time.monotonic()
                if chunk.app_metadata is None:
                    batches.append(chunk.data)
                    continue
                note = orjson.loads(chunk.app_metadata.to_pybytes())
                if note:
                    return Done.of(errand.part, batches, note, ask.address)
        except flight.FlightError as reason:
            raise _ours(reason, ask.address) from None
        except (pa.ArrowException, StopIteration) as reason:
            raise Unavailable(f"cannot read from worker {ask.address}: {reason!r}") from None

    def _client(self, address: str) -> Any:
        with self._lock:
            client = self._clients.get(address)
            if client is None:
                client = flight.connect(f"grpc://{address}", generic_options=_OPTIONS)
                self._clients[address] = client
            return client

    def _forget(self, address: str) -> None:
        # Not closed: other asks may be reading from it. It goes when the last of them does.
        with self._lock:
            self._clients.pop(address, None)


def _ours(error: flight.FlightError, address: str) -> LakeError:
    """What a worker said, by its code; anything else is the transport's, and another worker may do better."""
    text = str(error).split(". gRPC client debug context")[0].split(". Detail:")[0]
    code = (error.extra_info or b"").decode(errors="replace")
    if code == LimitHit.code or isinstance(error, flight.FlightTimedOutError):
        return LimitHit(text)
    if code == BadInput.code:
        return BadInput(text)
    if code == Denied.code:
        return Denied(f"cannot ask worker {address}: {text}")
    return Unavailable(f"cannot read from worker {address}: {text}")
