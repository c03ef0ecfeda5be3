"""One source's loop: receive, record, acknowledge. Nothing is acknowledged that is not durable."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.intake.metrics import ACKNOWLEDGED, RETURNED, SOURCE_UP
from lakerunner.intake.record import Recorder
from lakerunner.intake.source import EventSource, ReceivedEvent
from lakerunner.model.errors import LakeError, Unavailable
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

_PATIENCE = Backoff(base_s=0.25, cap_s=5.0)
#: How often events whose bucket does not answer are tried before they go back to their queue.
_TRIES = 5
#: Wait after an error that only a person can mend: a queue that does not exist, a right that is missing.
_MISCONFIGURED_S = 15.0


class SourceLoop:
    """Runs a source until stopped. Errors of the source are waited out and told by `probe`, never raised."""

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
                self._tell(error)
                stop.wait(_PATIENCE.ceiling_s(failures) if error.retryable else _MISCONFIGURED_S)
            else:
                failures = 0
                if all_done:
                    self._tell(None)

    def _handle(self, received: list[ReceivedEvent], stop: Stop) -> bool:
        """Record until all is done (True) or the rest was given back (False).

        While the index is down the same events are tried again and nothing more is received: a queue that counts
        deliveries would otherwise move events aside that have nothing wrong with them.
        """
        waiting, tries, failures = received, 0, 0
        while waiting and tries < _TRIES and not stop:
            try:
                waiting = self._record(waiting)
                tries += 1
            except LakeError as error:
                self._tell(error)
                failures += 1
                if not error.retryable:
                    waiting, tries = self._one_by_one(waiting), _TRIES
            if waiting:
                stop.wait(_PATIENCE.delay_s(tries + failures))
        if waiting:
            RETURNED.labels(self.name).inc(len(waiting))
            self._source.nack(waiting)
        return not waiting

    def _record(self, events: list[ReceivedEvent]) -> list[ReceivedEvent]:
        """Record and acknowledge; return what must come again."""
        recorded = self._recorder.record_events([event.event for event in events], self.name)
        crash_point("intake_after_record")
        self._ack([event for position, event in enumerate(events) if position not in recorded.later])
        if recorded.later:
            first = next(iter(recorded.later.values()))
            log().warning("objects not readable yet", source=self.name, count=len(recorded.later), error=str(first))
            self._tell(first)
        return [events[position] for position in recorded.later]

    def _one_by_one(self, events: list[ReceivedEvent]) -> list[ReceivedEvent]:
        """A batch that the index refuses is tried singly, so that only the culprit waits."""
        refused: list[ReceivedEvent] = []
        for event in events:
            try:
                refused += self._record([event])
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
            # They come again and are found in the ledger.
            log().warning("events not acknowledged", source=self.name, count=len(events), error=str(error))

    def _tell(self, error: LakeError | None) -> None:
        SOURCE_UP.labels(self.name).set(error is None)
        reason = None if error is None else str(error)
        if reason is not None and reason != self._reason:
            log().warning("intake waits", source=self.name, error=reason)
        self._reason = reason
