"""The loop of one source: receive, record, acknowledge. Only durable events are acknowledged."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from lakerunner.intake.metrics import ACKNOWLEDGED, RETURNED, SOURCE_UP
from lakerunner.intake.record import Recorder
from lakerunner.intake.source import EventSource, ReceivedEvent
from lakerunner.model.errors import LakeError, Unavailable
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

_BACKOFF = Backoff(base_s=0.25, cap_s=5.0)
#: Attempts at events whose bucket does not answer, before they are returned to their queue.
_TRIES = 5
#: Wait after an error that only a person can fix: a missing queue or permission.
_MISCONFIGURED_S = 15.0


class SourceLoop:
    """Runs a source until stopped. It waits after errors of the source and reports them by `probe`; it never raises."""

    def __init__(self, source: EventSource, recorder: Recorder, batch: int) -> None:
        self._source = source
        self._recorder = recorder
        self._batch = batch
        self._reason: str | None = None

    @property
    def name(self) -> str:
        return self._source.name

    def probe(self) -> None:
        if self._reason is not None:
            raise Unavailable(self._reason)

    def run(self, stop: Stop) -> None:
        failures = 0
        while not stop:
            try:
                received = self._source.receive(self._batch, self._source.wait_s)
                all_done = self._handle(received, stop)
            except LakeError as error:
                failures += 1
                self._report(error)
                stop.wait(_BACKOFF.ceiling_s(failures) if error.retryable else _MISCONFIGURED_S)
            except Exception as error:  # noqa: BLE001  (an error that nobody expected ends no other source)
                failures += 1
                log().error("source failed", source=self.name, trace="".join(traceback.format_exception(error)))
                self._report(Unavailable(f"cannot read {self.name}: {type(error).__name__}: {error}"))
                stop.wait(_BACKOFF.ceiling_s(failures))
            else:
                failures = 0
                if all_done:
                    self._report(self._source.trouble)

    def _handle(self, received: list[ReceivedEvent], stop: Stop) -> bool:
        """Record until all events are done (True) or the rest was returned to the source (False).

        While the index or the lake's own bucket is down, the same events are retried and nothing more is received.
        Otherwise a queue that counts deliveries would move good events to its dead-letter queue.
        """
        waiting, tries, failures = received, 0, 0
        while waiting and tries < _TRIES and not stop:
            try:
                waiting, is_blocked = self._record(waiting)
                tries, failures = (tries, failures + 1) if is_blocked else (tries + 1, failures)
            except LakeError as error:
                self._report(error)
                failures += 1
                if not error.retryable:
                    waiting, tries = self._one_by_one(waiting), _TRIES
            if waiting:
                stop.wait(_BACKOFF.delay_s(tries + failures))
        if waiting:
            RETURNED.labels(self.name).inc(len(waiting))
            self._source.nack(waiting)
        return not waiting

    def _record(self, events: list[ReceivedEvent]) -> tuple[list[ReceivedEvent], bool]:
        """Record and acknowledge events; return those to retry, and whether they wait for the lake's own bucket."""
        recorded = self._recorder.record_events([event.event for event in events], self.name)
        crash_point("intake_after_record")
        self._ack([event for position, event in enumerate(events) if position not in recorded.later])
        if recorded.later:
            first = next(iter(recorded.later.values()))
            log().warning("objects not readable yet", source=self.name, count=len(recorded.later), error=str(first))
            self._report(first)
        return [events[position] for position in recorded.later], recorded.is_blocked

    def _one_by_one(self, events: list[ReceivedEvent]) -> list[ReceivedEvent]:
        """Record the events of a refused batch one by one, so that only the culprit waits."""
        refused: list[ReceivedEvent] = []
        for event in events:
            try:
                refused += self._record([event])[0]
            except LakeError as error:
                log().error("cannot record an event", source=self.name, error=str(error), event_body=repr(event)[:500])
                refused.append(event)
        return refused

    def _ack(self, events: Sequence[ReceivedEvent]) -> None:
        if not events:
            return
        try:
            self._source.ack(events)
            ACKNOWLEDGED.labels(self.name).inc(len(events))
        except LakeError as error:
            # They are delivered again and found in the ledger.
            log().warning("events not acknowledged", source=self.name, count=len(events), error=str(error))

    def _report(self, error: LakeError | None) -> None:
        SOURCE_UP.labels(self.name).set(error is None)
        reason = None if error is None else str(error)
        if reason is not None and reason != self._reason:
            log().warning("intake waits", source=self.name, error=reason)
        self._reason = reason
