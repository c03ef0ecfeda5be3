"""One request to one worker, and the checks that give up on a worker that falls silent."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lakerunner.model.errors import LimitHit, Unavailable
from lakerunner.query.fanout.answer import Check
from lakerunner.query.fanout.protocol import SegmentObjects
from lakerunner.query.fanout.roster import Roster

#: Interval between two checks of the requests under way.
POLL_S = 0.05
#: The watcher goes on looking for this long after the last request: waking it up would cost each small query a thread
#: switch.
_LINGER_S = 5.0
#: A worker that owes an answer and has sent nothing for this long is pinged at this interval.
_PING_AFTER_S = 1.0
#: A worker that has not answered pings either for this long counts as dead.
DEAD_S = 5.0
#: A worker that answers pings but sends no data for this long is abandoned: another worker may not be blocked.
STALL_S = 60.0


@dataclass(slots=True, eq=False)
class Ask:
    """One request to one worker, under way."""

    address: str
    segments: dict[uuid.UUID, SegmentObjects]
    #: Raises when the answer is no longer wanted.
    check: Check
    #: When the worker last sent data. None while nothing is expected: the request may still wait for a thread.
    heard_at: float | None = None
    #: When the worker last sent data or answered a ping.
    alive_at: float = 0.0
    pinged_at: float = 0.0
    #: When the watcher gives up on the request, by the monotonic clock. Flight has a timeout of its own.
    deadline_s: float = math.inf
    reader: Any = None
    given_up: bool = False
    #: Why the watcher gave up on the request.
    stopped: Exception | None = None

    def heard(self) -> None:
        self.heard_at = self.alive_at = time.monotonic()

    def lives(self) -> None:
        self.alive_at = time.monotonic()

    def silent_for_s(self, dead_s: float, stall_s: float) -> float:
        """How long the worker has shown no sign of life, or has sent no data, if that is too long; else 0."""
        now = time.monotonic()
        if self.heard_at is None:
            return 0.0
        if now - self.alive_at > dead_s:
            return now - self.alive_at
        return now - self.heard_at if now - self.heard_at > stall_s else 0.0

    def require_time(self) -> None:
        if time.monotonic() > self.deadline_s:
            raise LimitHit("cannot finish the query: its time is over", hint="narrow the selectors or the time range")

    def give_up(self) -> None:
        self.given_up = True
        if self.reader is not None:
            self.reader.cancel()


class Liveness:
    """Decides whether the worker of a request is still alive. Safe to share between threads."""

    def __init__(self, roster: Roster, dead_s: float, stall_s: float) -> None:
        self._roster = roster
        self._dead_s, self._stall_s = dead_s, stall_s

    def require(self, ask: Ask) -> None:
        """Ping a silent worker. Raise if it answers no pings, or sends no data for too long."""
        now = time.monotonic()
        if ask.heard_at is None or now - ask.heard_at < _PING_AFTER_S:
            return
        if now - ask.pinged_at > _PING_AFTER_S:
            ask.pinged_at = now
            self._roster.ping(ask.address, ask.lives)
        if silent_s := ask.silent_for_s(self._dead_s, self._stall_s):
            raise Unavailable(f"cannot read from worker {ask.address}: no answer for {silent_s:.1f} s")


class AskWatcher:
    """Watches requests whose callers block on the worker's stream in their own thread.

    A thread that blocks on a hanging worker cannot check the time. The watcher's thread does, and cancels the request.
    """

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._asks: set[Ask] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asleep = False
        self._closed = False

    @contextmanager
    def watching(self, ask: Ask) -> Iterator[None]:
        self.add(ask)
        try:
            yield
        finally:
            self.remove(ask)

    def add(self, ask: Ask) -> None:
        with self._changed:
            self._asks.add(ask)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="ask-watch", daemon=True)
                self._thread.start()
            elif self._asleep:
                self._changed.notify()

    def remove(self, ask: Ask) -> None:
        """Stop watching. A request that has not ended is given up."""
        with self._changed:
            self._asks.discard(ask)
        if ask.reader is not None:
            ask.give_up()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _watch(self) -> None:
        used_at = time.monotonic()
        while True:
            with self._changed:
                if self._closed:
                    return
                self._asleep = not self._asks and time.monotonic() - used_at > _LINGER_S
                self._changed.wait(None if self._asleep else POLL_S)
                asks = list(self._asks)
            if asks:
                used_at = time.monotonic()
            for ask in asks:
                try:
                    ask.check()
                    ask.require_time()
                    self._liveness.require(ask)
                except Exception as reason:  # noqa: BLE001  (the caller's thread raises it, whatever it is)
                    ask.stopped = ask.stopped or reason
                    ask.give_up()
