"""Workers in other processes: each segment is asked of its own worker, and of others when that one fails."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from lakerunner.model.errors import BadInput, Bug, LakeError, LimitHit, Unavailable
from lakerunner.query.fanout.addresses import Addresses
from lakerunner.query.fanout.answer import Check, Cost, EvaluateAnswer, SegmentAnswer, Workers
from lakerunner.query.fanout.connections import Connections
from lakerunner.query.fanout.errors import Draining, Unread, from_flight
from lakerunner.query.fanout.placement import ranked
from lakerunner.query.fanout.protocol import EvaluateRequest, Kind, ScanRequest, SegmentObjects, unpacked_batch
from lakerunner.query.fanout.roster import Roster
from lakerunner.query.fanout.tls import Tls
from lakerunner.query.metrics import WORKER_RETRIES
from lakerunner.query.scan.samples import arrow as wire
from lakerunner.query.scan.samples.runs import Samples

_LOOK_S = 0.1
#: A worker that says nothing for this long while it should is pinged, again and again.
_PING_AFTER_S = 1.0
#: One that does not answer pings either for this long is taken for dead.
DEAD_S = 5.0
#: One that lives, but answers nothing for this long, is left too: what it waits for may not hold up another.
STALL_S = 60.0
#: Between two tries at a worker that is being started anew.
_REBIRTH_LOOK_S = 0.25
_MAX_ASKS = 256


@dataclass(slots=True, eq=False)
class _Ask:
    """One request to one worker, under way."""

    address: str
    segments: dict[uuid.UUID, SegmentObjects]
    #: Raises when the answer is no longer wanted.
    check: Check
    #: None until it is under way: it may have to wait for a thread.
    heard_at: float | None = None
    alive_at: float = 0.0
    pinged_at: float = 0.0
    reader: Any = None
    given_up: bool = False
    #: Why the watcher gave it up.
    stopped: Exception | None = None

    def heard(self) -> None:
        self.heard_at = self.alive_at = time.monotonic()

    def lives(self) -> None:
        self.alive_at = time.monotonic()

    def silent_for_s(self, dead_s: float, stall_s: float) -> float:
        """How long it has been silent, where that is too long: without any sign of life, or without an answer."""
        now = time.monotonic()
        if self.heard_at is None:
            return 0.0
        if now - self.alive_at > dead_s:
            return now - self.alive_at
        return now - self.heard_at if now - self.heard_at > stall_s else 0.0

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
    check: Check
    events: queue.SimpleQueue[SegmentAnswer | _Over] = field(default_factory=queue.SimpleQueue)
    asks: list[_Ask] = field(default_factory=list)
    tried: dict[uuid.UUID, list[str]] = field(default_factory=dict)
    open: dict[uuid.UUID, SegmentObjects] = field(default_factory=dict)
    reasons: dict[uuid.UUID, str] = field(default_factory=dict)
    #: Segments for which no worker is left.
    left: list[SegmentObjects] = field(default_factory=list)
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
        self._token = token
        self._attempts = attempts
        self._last_resort = last_resort
        self._stall_s, self._dead_s, self._patience_s = stall_s, dead_s, patience_s
        self._connections = Connections(token, tls)
        self._roster = Roster(addresses, self._connections)
        self._pool = ThreadPoolExecutor(_MAX_ASKS, thread_name_prefix="ask")
        self._watcher = _Watcher(self._require_life)

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        scan = _Scan(request, check, open={one.segment_id: one for one in request.segments})
        self._assign(scan, request.segments)
        try:
            while scan.asks:
                check()
                self._watch(scan)
                event = _next(scan)
                if isinstance(event, SegmentAnswer) and self._accepted(scan, event):
                    yield event
                elif isinstance(event, _Over):
                    self._over(scan, event)
                if not scan.asks:
                    self._ask_the_reborn(scan)
        finally:
            for ask in scan.asks:
                ask.give_up()
        yield from self._leftover(scan, check)

    @property
    def count(self) -> int:
        return sum(not self._roster.is_down(each) for each in self._roster.known())

    def shares(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> list[list[SegmentObjects]]:
        known = [each for each in self._roster.known() if not self._roster.is_down(each)]
        if len(known) < 2:
            return [list(segments)]
        shares: dict[str, list[SegmentObjects]] = {}
        for segment in segments:
            shares.setdefault(ranked(known, org_id, segment.slot)[0], []).append(segment)
        return list(shares.values())

    def evaluate(self, request: EvaluateRequest, check: Check) -> EvaluateAnswer | None:
        """The fragment evaluated by a worker; None where none can, and the caller has to.

        A worker that dies of it is an error where no other is left: the caller would only wait for it to come back.
        """
        died: Unavailable | None = None
        for address in self._owners(request)[: self._attempts]:
            ask = _Ask(address, {}, check)
            try:
                with self._watcher.watching(ask):
                    *batches, answer = self._run(request, ask)
                assert isinstance(answer, EvaluateAnswer)
                return dataclasses.replace(answer, batches=batches)
            except (BadInput, Unread, Bug):
                # The worker is healthy. The caller finds out what is wrong: the query, a segment, or our own code.
                return None
            except Unavailable as error:
                self._lost(ask)
                died = None if ask.reader is None or isinstance(error, Draining) else error
        if died is not None and self._last_resort is None:
            raise died
        return None

    def stream(self, request: EvaluateRequest, check: Check) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        given, reason = 0, Unavailable("cannot read rows: no query worker is there")
        for address in self._owners(request)[: self._attempts]:
            ask = _Ask(address, {}, check)
            try:
                with self._watcher.watching(ask):
                    for part in _resumed(self._run(request, ask), given):
                        given += part.num_rows if isinstance(part, pa.RecordBatch) else 0
                        yield part
                return
            except Unavailable as error:
                self._lost(ask)
                reason = error
        if self._last_resort is None:
            raise reason
        yield from _resumed(self._last_resort.stream(request, check), given)

    def _lost(self, ask: _Ask) -> None:
        """Count a worker that failed, and ask it last until it answers pings again."""
        WORKER_RETRIES.inc()
        self._roster.failed(ask.address)
        self._connections.forget(ask.address)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._watcher.close()
        self._roster.close()
        self._connections.close()
        if self._last_resort is not None:
            self._last_resort.close()

    def _owners(self, request: EvaluateRequest) -> list[str]:
        """Workers that are up, ordered by how many of the fragment's bytes they own."""
        known = [one for one in self._roster.known() if not self._roster.is_down(one)]
        if len(known) < 2:
            return known
        owned_bytes = dict.fromkeys(known, 0)
        for segment in request.segments:
            owned_bytes[ranked(known, request.org_id, segment.slot)[0]] += segment.size_bytes
        return sorted(known, key=lambda address: owned_bytes[address], reverse=True)

    # -- who gets what -----------------------------------------------------------------------------------------

    def _assign(self, scan: _Scan, segments: Sequence[SegmentObjects]) -> None:
        """Ask for the segments, each of the best worker that was not tried for it."""
        known = self._roster.known()
        shares: dict[str, dict[uuid.UUID, SegmentObjects]] = {}
        for segment in segments:
            tried = scan.tried.setdefault(segment.segment_id, [])
            candidates = [one for one in ranked(known, scan.request.org_id, segment.slot) if one not in tried]
            # Those known to be down come last, but they come.
            candidates.sort(key=self._roster.is_down)
            if not candidates or len(tried) >= self._attempts:
                scan.left.append(segment)
                continue
            if tried:
                WORKER_RETRIES.inc()
            tried.append(candidates[0])
            shares.setdefault(candidates[0], {})[segment.segment_id] = segment
        for address, share in shares.items():
            ask = _Ask(address, share, scan.check)
            scan.asks.append(ask)
            self._pool.submit(self._ask, scan, ask)

    def _ask_the_reborn(self, scan: _Scan) -> None:
        """Where nobody is left to ask, begin again with workers that may be about to come back."""
        if self._last_resort is not None or not self._roster.any_down_for_less_than(self._patience_s):
            return
        again = [one for one in scan.left if one.segment_id in scan.unreached]
        if not again:
            return
        time.sleep(_REBIRTH_LOOK_S)
        scan.left = [one for one in scan.left if one.segment_id not in scan.unreached]
        for segment in again:
            scan.tried[segment.segment_id].clear()
        self._assign(scan, again)

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

    def _over(self, scan: _Scan, event: _Over) -> None:
        ask, error = event.ask, event.error
        if ask not in scan.asks:
            return  # Given up before: its segments are asked of others already.
        scan.asks.remove(ask)
        if isinstance(error, LimitHit):
            raise error
        again = [segment for segment_id, segment in ask.segments.items() if segment_id in scan.open]
        if error is None:
            self._roster.answered(ask.address)
        else:
            self._roster.failed(ask.address)
            for segment in again:
                scan.reasons[segment.segment_id] = str(error)
            if error.retryable and (ask.reader is None or isinstance(error, Draining)):
                scan.unreached.update(segment.segment_id for segment in again)
            else:
                scan.unreached.difference_update(segment.segment_id for segment in again)
        self._assign(scan, again)

    def _watch(self, scan: _Scan) -> None:
        """Give up on workers that hang: their connection is there, but nothing comes."""
        if scan.request.time_left_s < 0:
            raise LimitHit("cannot finish the scan: its time is over", hint="narrow the selectors or the time range")
        for ask in list(scan.asks):
            try:
                self._require_life(ask)
            except Unavailable as error:
                ask.give_up()
                self._over(scan, _Over(ask, error))

    def _require_life(self, ask: _Ask) -> None:
        """Ping a worker that says nothing; raise when it does not answer that either, or nothing else for too long."""
        now = time.monotonic()
        if ask.heard_at is None or now - ask.heard_at < _PING_AFTER_S:
            return
        if now - ask.pinged_at > _PING_AFTER_S:
            ask.pinged_at = now
            self._roster.ping(ask.address, ask.lives)
        if silent_s := ask.silent_for_s(self._dead_s, self._stall_s):
            raise Unavailable(f"cannot read from worker {ask.address}: no word for {silent_s:.1f} s")

    def _leftover(self, scan: _Scan, check: Check) -> Iterator[SegmentAnswer]:
        left = [segment for segment in scan.left if segment.segment_id in scan.open]
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
            error = from_flight(reason, ask.address)
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
        options = flight.FlightCallOptions(timeout=max(0.1, request.time_left_s))
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

    def _run(self, request: EvaluateRequest, ask: _Ask) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        """The batches of the worker, then its answer without them."""
        options = flight.FlightCallOptions(timeout=max(0.1, request.time_left_s))
        try:
            ask.heard()
            client = self._connections.client(ask.address)
            ask.reader = client.do_get(flight.Ticket(request.to_ticket(self._token)), options)
            while not ask.given_up:
                chunk = ask.reader.read_chunk()
                ask.heard()
                if chunk.app_metadata is None:
                    # Not waited for while the caller is busy with the batch.
                    ask.heard_at = None
                    yield unpacked_batch(chunk.data) if request.fragment.rows else chunk.data
                    ask.heard()
                    continue
                note = orjson.loads(chunk.app_metadata.to_pybytes())
                if note:
                    yield EvaluateAnswer.of_note(note, ask.address)
                    return
            raise ask.stopped or Unavailable(f"cannot read from worker {ask.address}: given up")
        except flight.FlightError as reason:
            if ask.stopped is not None:
                raise ask.stopped from None
            raise from_flight(reason, ask.address) from None
        except (pa.ArrowException, StopIteration) as reason:
            raise Unavailable(f"cannot read from worker {ask.address}: {reason!r}") from None


def _resumed(parts: Iterable[pa.RecordBatch | EvaluateAnswer], given: int) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
    """The parts without the rows that were given before. Rows have one order, whichever worker reads them."""
    left = given
    for part in parts:
        if isinstance(part, EvaluateAnswer):
            if given and part.note["tally"]["failed"]:
                # Then the rows given before may not be the ones left out here.
                raise Unavailable("cannot go on with the rows: the next worker cannot read a segment")
            yield part
        elif left == 0 or left < part.num_rows:
            yield part.slice(left)
            left = 0
        else:
            left -= part.num_rows


class _Watcher:
    """Looks after evaluations whose callers wait for a worker in their own thread.

    A worker that hangs says nothing, and a reader that waits for it cannot look at the clock: this thread does both.
    """

    def __init__(self, require_life: Callable[[_Ask], None]) -> None:
        self._require_life = require_life
        self._asks: set[_Ask] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def watching(self, ask: _Ask) -> Iterator[None]:
        with self._changed:
            self._asks.add(ask)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="ask-watch", daemon=True)
                self._thread.start()
            elif len(self._asks) == 1:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._asks.discard(ask)
            if ask.reader is not None:
                ask.give_up()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._changed.wait(_LOOK_S if self._asks else None)
                asks = list(self._asks)
            for ask in asks:
                try:
                    ask.check()
                    self._require_life(ask)
                except Exception as reason:  # noqa: BLE001  (whatever it is, the caller's thread raises it)
                    ask.stopped = ask.stopped or reason
                    ask.give_up()


def _next(scan: _Scan) -> SegmentAnswer | _Over | None:
    try:
        return scan.events.get(timeout=_LOOK_S)
    except queue.Empty:
        return None
