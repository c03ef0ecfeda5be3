"""Workers in other processes: each segment is asked of its own worker, and of others when that one fails."""

from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from lakerunner.model.errors import Bug, LakeError, LimitHit, Unavailable
from lakerunner.query.metrics import WORKER_RETRIES
from lakerunner.query.scan.samples import Samples
from lakerunner.query.worker import wire
from lakerunner.query.worker.addresses import Addresses
from lakerunner.query.worker.answer import Check, Cost, SegmentAnswer, Workers
from lakerunner.query.worker.connections import Connections
from lakerunner.query.worker.refusal import Draining, understood
from lakerunner.query.worker.rendezvous import ranked
from lakerunner.query.worker.request import Kind, ScanRequest, SegmentObjects
from lakerunner.query.worker.tls import Tls

_LOOK_S = 0.1
#: A worker that failed is asked after so long whether it is back. Until it says so, it is tried last.
_DOWN_S = 1.0
#: A worker that says nothing for this long while it should is pinged, again and again.
_PING_AFTER_S = 1.0
_PING_S = 2.0
#: One that does not answer pings either for this long is taken for dead.
DEAD_S = 5.0
#: One that lives, but answers nothing for this long, is left too: what it waits for may not hold up another.
STALL_S = 60.0
#: Between two tries at a worker that is being started anew.
_REBIRTH_LOOK_S = 0.25
_MAX_ASKS, _MAX_PINGS = 256, 8


@dataclass(slots=True, eq=False)
class _Ask:
    """One request to one worker, under way."""

    address: str
    segments: dict[uuid.UUID, SegmentObjects]
    #: None until it is under way: it may have to wait for a thread.
    heard_at: float | None = None
    alive_at: float = 0.0
    pinged_at: float = 0.0
    reader: Any = None
    given_up: bool = False

    def heard(self) -> None:
        self.heard_at = self.alive_at = time.monotonic()

    def give_up(self) -> None:
        self.given_up = True
        if self.reader is not None:
            self.reader.cancel()


@dataclass(frozen=True, slots=True)
class _Down:
    """A worker that failed: since when, and when to ask it whether it is back."""

    since: float
    ask_at: float


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
    #: Segments whose last worker could not be asked at all: it may be back soon.
    unreached: set[uuid.UUID] = field(default_factory=set)


class FlightWorkers:
    """Safe to share between threads. `last_resort` scans what no worker could, where that is wanted.

    A worker that is being started anew is waited for, up to `patience_s` from when it was first missed, where no other
    can do. One that dies while it scans is not: it may have died of the query.
    """

    def __init__(
        self,
        addresses: Addresses,
        token: str,
        attempts: int = 3,
        last_resort: Workers | None = None,
        stall_s: float = STALL_S,
        dead_s: float = DEAD_S,
        patience_s: float = 15.0,
        tls: Tls | None = None,
    ) -> None:
        self._addresses = addresses
        self._token = token
        self._attempts = attempts
        self._last_resort = last_resort
        self._stall_s, self._dead_s, self._patience_s = stall_s, dead_s, patience_s
        self._connections = Connections(token, tls)
        self._down: dict[str, _Down] = {}
        self._pool = ThreadPoolExecutor(_MAX_ASKS, thread_name_prefix="ask")
        self._pings = ThreadPoolExecutor(_MAX_PINGS, thread_name_prefix="ping")

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        scan = _Scan(request, open={one.segment_id: one for one in request.segments})
        left = self._assign(scan, request.segments)
        try:
            while True:
                while scan.asks:
                    check()
                    left += self._watch(scan)
                    event = _next(scan)
                    if isinstance(event, SegmentAnswer) and self._accepted(scan, event):
                        yield event
                    elif isinstance(event, _Over):
                        left += self._over(scan, event)
                left, again = self._worth_waiting(scan, left)
                if not again:
                    break
                check()
                time.sleep(_REBIRTH_LOOK_S)
                left += self._assign(scan, again)
        finally:
            for ask in scan.asks:
                ask.give_up()
        yield from self._leftover(scan, left, check)

    def close(self) -> None:
        for pool in (self._pool, self._pings):
            pool.shutdown(wait=False, cancel_futures=True)
        self._connections.close()
        if self._last_resort is not None:
            self._last_resort.close()

    # -- who gets what -----------------------------------------------------------------------------------------

    def _assign(self, scan: _Scan, segments: Sequence[SegmentObjects]) -> list[SegmentObjects]:
        """Ask for the segments; return those for which no worker is left."""
        known = self._known()
        shares: dict[str, dict[uuid.UUID, SegmentObjects]] = {}
        left = []
        for segment in segments:
            tried = scan.tried.setdefault(segment.segment_id, [])
            candidates = [one for one in ranked(known, segment.segment_id) if one not in tried]
            # Those known to be down come last, but they come.
            candidates.sort(key=lambda one: one in self._down)
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

    def _known(self) -> list[str]:
        """Where the workers are now. Those that have gone are forgotten, those that failed are asked how they are."""
        known = self._addresses()
        self._connections.keep_only(known)
        now = time.monotonic()
        for address, down in list(self._down.items()):
            if address not in known:
                self._down.pop(address, None)
            elif now > down.ask_at:
                self._down[address] = _Down(down.since, now + _DOWN_S + _PING_S)
                self._pings.submit(self._readmit, address)
        return known

    def _failed(self, address: str) -> None:
        now = time.monotonic()
        known = self._down.get(address)
        self._down[address] = _Down(known.since if known else now, now + _DOWN_S)

    def _readmit(self, address: str) -> None:
        try:
            self._connections.ping(address, _PING_S)
        except flight.FlightError:
            self._connections.forget(address)
        else:
            self._down.pop(address, None)

    def _worth_waiting(
        self, scan: _Scan, left: list[SegmentObjects]
    ) -> tuple[list[SegmentObjects], list[SegmentObjects]]:
        """Segments that nobody could read, and those of them to try again: their worker may be about to come back."""
        newly_down = any(time.monotonic() - down.since < self._patience_s for down in list(self._down.values()))
        if self._last_resort is not None or not newly_down:
            return left, []
        again = [one for one in left if one.segment_id in scan.unreached and one.segment_id in scan.open]
        for segment in again:
            scan.tried[segment.segment_id].clear()
        return [one for one in left if one not in again], again

    def _accepted(self, scan: _Scan, answer: SegmentAnswer) -> bool:
        """Whether this answer counts: a failure is first tried elsewhere, and a late double is dropped."""
        if answer.segment_id not in scan.open:
            return False
        if answer.error is None:
            del scan.open[answer.segment_id]
            return True
        scan.reasons[answer.segment_id] = answer.error
        scan.unreached.discard(answer.segment_id)
        return False

    def _over(self, scan: _Scan, event: _Over) -> list[SegmentObjects]:
        if event.ask not in scan.asks:
            return []  # Given up before: its segments are asked of others already.
        scan.asks.remove(event.ask)
        if isinstance(event.error, LimitHit):
            raise event.error
        again = [segment for segment_id, segment in event.ask.segments.items() if segment_id in scan.open]
        if event.error is None:
            self._down.pop(event.ask.address, None)
        else:
            self._failed(event.ask.address)
            not_asked = event.error.retryable and (event.ask.reader is None or isinstance(event.error, Draining))
            for segment in again:
                scan.reasons[segment.segment_id] = str(event.error)
                (scan.unreached.add if not_asked else scan.unreached.discard)(segment.segment_id)
        return self._assign(scan, again)

    def _watch(self, scan: _Scan) -> list[SegmentObjects]:
        """Give up on workers that hang: their connection is there, but nothing comes."""
        now = time.monotonic()
        if time.time() > scan.request.deadline_s:
            raise LimitHit("cannot finish the scan: its time is over", hint="narrow the selectors or the time range")
        left = []
        for ask in list(scan.asks):
            if ask.heard_at is None or now - ask.heard_at < _PING_AFTER_S:
                continue
            if now - ask.pinged_at > _PING_AFTER_S:
                ask.pinged_at = now
                self._pings.submit(self._ping, ask)
            for silent_s, bound_s in ((now - ask.alive_at, self._dead_s), (now - ask.heard_at, self._stall_s)):
                if silent_s > bound_s and not ask.given_up:
                    ask.give_up()
                    error = Unavailable(f"cannot read from worker {ask.address}: no word for {bound_s:g} s")
                    left += self._over(scan, _Over(ask, error))
        return left

    def _ping(self, ask: _Ask) -> None:
        try:
            self._connections.ping(ask.address, _PING_S)
        except flight.FlightError as reason:
            if not isinstance(understood(reason, ask.address), Draining):
                return
        ask.alive_at = time.monotonic()

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
            error = understood(reason, ask.address)
        except pa.ArrowException as reason:
            error = Unavailable(f"cannot read from worker {ask.address}: {reason}")
        except LakeError as reason:
            error = reason
        except BaseException as reason:
            error = Bug(f"cannot read from worker {ask.address}: {reason!r}")
            raise
        finally:
            if error is not None:
                self._connections.forget(ask.address)
            scan.events.put(_Over(ask, error))

    def _read(self, scan: _Scan, ask: _Ask) -> None:
        request = scan.request.of_segments(list(ask.segments.values()))
        options = flight.FlightCallOptions(timeout=max(0.1, request.deadline_s - time.time()))
        ask.heard()
        ask.reader = self._connections.client(ask.address).do_get(
            flight.Ticket(request.to_ticket(self._token)), options
        )
        parts: list[Samples] = []
        batches: list[pa.RecordBatch] = []
        while not ask.given_up:
            try:
                chunk = ask.reader.read_chunk()
            except StopIteration:
                return
            ask.heard()
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


def _next(scan: _Scan) -> SegmentAnswer | _Over | None:
    try:
        return scan.events.get(timeout=_LOOK_S)
    except queue.Empty:
        return None
