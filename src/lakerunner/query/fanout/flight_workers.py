"""Workers in other processes. Each segment goes to its own worker first, and to others if that one fails."""

from __future__ import annotations

import dataclasses
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.flight as flight

from lakerunner.model.errors import BadInput, Bug, LakeError, LimitHit, Unavailable
from lakerunner.query.fanout.addresses import Addresses
from lakerunner.query.fanout.answer import Check, Cost, EvaluateAnswer, SegmentAnswer, Workers
from lakerunner.query.fanout.ask import DEAD_S, STALL_S, Ask, AskWatcher, Liveness
from lakerunner.query.fanout.connections import Connections
from lakerunner.query.fanout.errors import Draining, Unread, from_flight
from lakerunner.query.fanout.flight_scan import AskEnded, FlightScan
from lakerunner.query.fanout.placement import dealt, ranked
from lakerunner.query.fanout.protocol import EvaluateRequest, Kind, ScanRequest, SegmentObjects, unpacked_batch
from lakerunner.query.fanout.resume import Delivered, resumed
from lakerunner.query.fanout.roster import Roster
from lakerunner.query.fanout.socket_calls import SocketCall
from lakerunner.query.fanout.tls import Tls
from lakerunner.query.metrics import WORKER_RETRIES
from lakerunner.query.scan.samples import arrow as wire
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.store.requests import add_requests

#: Interval between two attempts to reach a worker that restarts.
_RESTART_POLL_S = 0.25
_MAX_ASKS = 256


class FlightWorkers:
    """Sends scans and fragments to workers over Arrow Flight. Safe to share between threads.

    Fragments go over the socket of a worker that has one in `data_dir`.

    `last_resort`, if given, does what no worker could. If no other worker is left, a scan waits for a worker that
    restarts, up to `patience_s` after it was first missed. It does not wait for a worker that died during the scan: the
    query may have killed it.
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
        data_dir: Path | None = None,
    ) -> None:
        self._token = token
        self._attempts = attempts
        self._last_resort = last_resort
        self._patience_s = patience_s
        self._connections = Connections(token, tls, data_dir)
        self._roster = Roster(addresses, self._connections)
        self._pool = ThreadPoolExecutor(_MAX_ASKS, thread_name_prefix="ask")
        self._liveness = Liveness(self._roster, dead_s, stall_s)
        self._watcher = AskWatcher(self._liveness)

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        scan = FlightScan(request, check, open={segment.segment_id: segment for segment in request.segments})
        self._assign(scan, request.segments)
        try:
            while scan.asks:
                check()
                self._watch(scan)
                event = scan.next_event()
                if isinstance(event, SegmentAnswer) and scan.accept(event):
                    yield event
                elif isinstance(event, AskEnded):
                    self._ended(scan, event)
                if not scan.asks:
                    self._retry_restarting(scan)
        finally:
            for ask in scan.asks:
                ask.give_up()
        yield from self._leftover(scan, check)

    @property
    def count(self) -> int:
        return len(self._up())

    def shares(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> list[list[SegmentObjects]]:
        known = self._up()
        if len(known) < 2:
            return [list(segments)]
        shares: dict[str, list[SegmentObjects]] = {}
        for segment in segments:
            shares.setdefault(ranked(known, org_id, segment.slot)[0], []).append(segment)
        return list(shares.values())

    def places(self, org_id: uuid.UUID, parts: Sequence[Sequence[SegmentObjects]]) -> list[str | None]:
        known = self._up()
        if len(known) < 2:
            return [None] * len(parts)
        return [*dealt([self._owned_bytes(known, org_id, part) for part in parts], known)]

    def evaluate(self, request: EvaluateRequest, check: Check) -> EvaluateAnswer | None:
        """Have a worker evaluate the fragment; None if none can, and the caller must evaluate it.

        It is an error if a worker dies during the evaluation and no other is left: the caller would only wait for the
        worker to come back.
        """
        died: Unavailable | None = None
        for address in self._owners(request)[: self._attempts]:
            ask = Ask(address, {}, check)
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
        return self._whole(request, check) if request.small else self._continued(request, check)

    def _whole(self, request: EvaluateRequest, check: Check) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        """A small answer, which comes in one piece: nothing is delivered before all is here."""
        reason = Unavailable("cannot read rows: no query worker is available")
        for address in self._owners(request)[: self._attempts]:
            ask = Ask(address, {}, check)
            self._watcher.add(ask)
            try:
                return iter(list(self._run(request, ask)))
            except Unavailable as error:
                self._lost(ask)
                reason = error
            finally:
                self._watcher.remove(ask)
        if self._last_resort is None:
            raise reason
        return self._last_resort.stream(request, check)

    def _continued(self, request: EvaluateRequest, check: Check) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        delivered, reason = Delivered(), Unavailable("cannot read rows: no query worker is available")
        for address in self._owners(request)[: self._attempts]:
            ask = Ask(address, {}, check)
            try:
                with self._watcher.watching(ask):
                    for part in resumed(self._run(request, ask), delivered):
                        if isinstance(part, pa.RecordBatch):
                            delivered.add(part)
                        yield part
                return
            except Unavailable as error:
                self._lost(ask)
                reason = error
        if self._last_resort is None:
            raise reason
        yield from resumed(self._last_resort.stream(request, check), delivered)

    def filters(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> Iterator[tuple[uuid.UUID, bytes]]:
        for share in self.shares(org_id, segments) if self._up() else ():
            address = ranked(self._up(), org_id, share[0].slot)[0]
            try:
                found = self._connections.filters(address, org_id, share)
            except flight.FlightError as reason:
                raise from_flight(reason, address) from None
            yield from zip((each.segment_id for each in share), found, strict=True)

    def _lost(self, ask: Ask) -> None:
        """Note that a worker failed. It is tried last until it answers pings again."""
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

    def _up(self) -> list[str]:
        return self._roster.up()

    def _owners(self, request: EvaluateRequest) -> list[str]:
        """Workers that are up: the one that the request was dealt to, then by how many of its bytes they own."""
        known = self._up()
        if len(known) < 2:
            return known
        owned_bytes = self._owned_bytes(known, request.org_id, request.segments)
        return sorted(known, key=lambda address: (address == request.place, owned_bytes[address]), reverse=True)

    @staticmethod
    def _owned_bytes(known: Sequence[str], org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> dict[str, int]:
        owned_bytes = dict.fromkeys(known, 0)
        for segment in segments:
            owned_bytes[ranked(known, org_id, segment.slot)[0]] += segment.size_bytes
        return owned_bytes

    # -- which worker gets which segments ------------------------------------------------------------------------

    def _assign(self, scan: FlightScan, segments: Sequence[SegmentObjects]) -> None:
        """Request each segment from the best worker that was not tried for it yet."""
        known = self._roster.known()
        shares: dict[str, dict[uuid.UUID, SegmentObjects]] = {}
        for segment in segments:
            tried = scan.tried.setdefault(segment.segment_id, [])
            candidates = [each for each in ranked(known, scan.request.org_id, segment.slot) if each not in tried]
            # Workers known to be down are tried too, but last.
            candidates.sort(key=self._roster.is_down)
            if not candidates or len(tried) >= self._attempts:
                scan.left.append(segment)
                continue
            if tried:
                WORKER_RETRIES.inc()
            tried.append(candidates[0])
            shares.setdefault(candidates[0], {})[segment.segment_id] = segment
        for address, share in shares.items():
            ask = Ask(address, share, scan.check)
            scan.asks.append(ask)
            self._pool.submit(self._ask, scan, ask)

    def _retry_restarting(self, scan: FlightScan) -> None:
        """When no worker is left, start over with those that may be about to come back."""
        if self._last_resort is not None or not self._roster.any_down_for_less_than(self._patience_s):
            return
        again = [segment for segment in scan.left if segment.segment_id in scan.unreached]
        if not again:
            return
        time.sleep(_RESTART_POLL_S)
        scan.left = [segment for segment in scan.left if segment.segment_id not in scan.unreached]
        for segment in again:
            scan.tried[segment.segment_id].clear()
        self._assign(scan, again)

    def _ended(self, scan: FlightScan, event: AskEnded) -> None:
        ask, error = event.ask, event.error
        if ask not in scan.asks:
            return  # Given up earlier: other workers have its segments by now.
        scan.asks.remove(ask)
        if isinstance(error, LimitHit):
            raise error
        unanswered = [segment for segment_id, segment in ask.segments.items() if segment_id in scan.open]
        if error is None:
            self._roster.answered(ask.address)
        else:
            self._roster.failed(ask.address)
            for segment in unanswered:
                scan.reasons[segment.segment_id] = str(error)
            if error.retryable and (ask.reader is None or isinstance(error, Draining)):
                scan.unreached.update(segment.segment_id for segment in unanswered)
            else:
                scan.unreached.difference_update(segment.segment_id for segment in unanswered)
        self._assign(scan, unanswered)

    def _watch(self, scan: FlightScan) -> None:
        """Give up on workers that hang: connected, but silent."""
        if scan.request.time_left_s < 0:
            raise LimitHit("cannot finish the scan: its time is over", hint="narrow the selectors or the time range")
        for ask in list(scan.asks):
            try:
                self._liveness.require(ask)
            except Unavailable as error:
                ask.give_up()
                self._ended(scan, AskEnded(ask, error))

    def _leftover(self, scan: FlightScan, check: Check) -> Iterator[SegmentAnswer]:
        left = [segment for segment in scan.left if segment.segment_id in scan.open]
        if not left:
            return
        if self._last_resort is not None:
            yield from self._last_resort.scan(scan.request.of_segments(left), check)
            return
        for segment in left:
            reason = scan.reasons.get(segment.segment_id, "no query worker is available")
            yield SegmentAnswer(segment.segment_id, error=f"cannot read segment {segment.segment_id}: {reason}")

    # -- one request, on a thread of the pool ----------------------------------------------------------------------

    def _ask(self, scan: FlightScan, ask: Ask) -> None:
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
            scan.events.put(AskEnded(ask, error))

    def _read(self, scan: FlightScan, ask: Ask) -> None:
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
            add_requests(note.get("requests", ()))
            answer = SegmentAnswer(uuid.UUID(note["segment"]), tuple(parts), table, Cost(**note["cost"]), note["error"])
            scan.events.put(answer)
            parts, batches = [], []

    def _run(self, request: EvaluateRequest, ask: Ask) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        """Yield the worker's batches, then its answer without batches: over its socket, if it has one here."""
        connection = self._connections.sockets.connection(ask.address)
        if connection is None:
            return self._run_flight(request, ask)
        return self._run_socket(request, ask, connection)

    def _run_socket(
        self, request: EvaluateRequest, ask: Ask, connection: socket.socket
    ) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        call = SocketCall(connection, ask.address)
        ask.deadline_s = request.deadline_s
        try:
            ask.heard()
            ask.reader = call
            call.send(request.to_ticket(self._token))
            while not ask.given_up:
                batch, note = call.next()
                ask.heard()
                # An empty batch of rows has the columns of the answer.
                if batch is not None and (batch.num_rows or request.fragment.rows):
                    # The worker owes nothing while the caller is busy with the batch.
                    ask.heard_at = None
                    yield batch
                    ask.heard()
                if note is not None:
                    call.end()
                    self._connections.sockets.give_back(ask.address, connection)
                    yield EvaluateAnswer.of_note(orjson.loads(note), ask.address)
                    return
            raise ask.stopped or Unavailable(f"cannot read from worker {ask.address}: given up")
        except (OSError, pa.ArrowException) as reason:
            if ask.stopped is not None:
                raise ask.stopped from None
            raise Unavailable(f"cannot read from worker {ask.address}: {reason}") from None
        finally:
            if not call.ended:
                call.end()
                connection.close()

    def _run_flight(self, request: EvaluateRequest, ask: Ask) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
        options = flight.FlightCallOptions(timeout=max(0.1, request.time_left_s))
        try:
            ask.heard()
            client = self._connections.client(ask.address)
            ask.reader = client.do_get(flight.Ticket(request.to_ticket(self._token)), options)
            while not ask.given_up:
                chunk = ask.reader.read_chunk()
                ask.heard()
                if chunk.data.num_rows:
                    # The worker owes nothing while the caller is busy with the batch.
                    ask.heard_at = None
                    yield unpacked_batch(chunk.data) if request.fragment.rows else chunk.data
                    ask.heard()
                if chunk.app_metadata is None:
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
