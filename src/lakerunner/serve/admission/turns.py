"""Turns: queries run in a few threads, and orgs take turns. A hundred queries of one org delay another's by one."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from lakerunner.model.errors import LakeError

T = TypeVar("T")


class TooMany(LakeError):
    """The org has as many queries waiting as it may. Asking again later may help."""

    code = "too_many"
    retryable = True


def too_many(waiting: int) -> TooMany:
    return TooMany(
        f"cannot take another query: {waiting} of this org are waiting (api.org_waiting)",
        hint="ask again later, or ask less at once",
    )


_Waiting = tuple["Future[Any]", Callable[[], Any]]


class Turns:
    """Runs calls in `threads` threads, next a call of the org whose turn it is. Few of one org run at once."""

    def __init__(self, threads: int, per_org: int, waiting_per_org: int) -> None:
        self._per_org = per_org
        #: Orgs that may have more or fewer at once, as their last call said.
        self._own: dict[uuid.UUID, int] = {}
        self._waiting_per_org = waiting_per_org
        self._changed = threading.Condition()
        #: Orgs with something waiting, in the order of their turns.
        self._waiting: OrderedDict[uuid.UUID, deque[_Waiting]] = OrderedDict()
        self._running: dict[uuid.UUID, int] = {}
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"query-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, org_id: uuid.UUID, call: Callable[[], T], per_org: int | None = None) -> Future[T]:
        """Run it when its turn comes. `per_org` is how many of this org may run at once, where that is its own."""
        future: Future[T] = Future()
        with self._changed:
            if per_org is None or per_org == self._per_org:
                self._own.pop(org_id, None)
            else:
                self._own[org_id] = per_org
            queue = self._waiting.setdefault(org_id, deque())
            _drop_cancelled(queue)
            if len(queue) >= self._waiting_per_org:
                raise too_many(len(queue))
            queue.append((future, call))
            self._changed.notify()
        return future

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for queue in self._waiting.values():
                for future, _ in queue:
                    future.cancel()
            self._changed.notify_all()

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            org_id, future, call = taken
            try:
                if future.set_running_or_notify_cancel():
                    _run(future, call)
            finally:
                with self._changed:
                    self._running[org_id] -= 1
                    if not self._running[org_id]:
                        del self._running[org_id]
                    self._changed.notify()

    def _next(self) -> tuple[uuid.UUID, Future[Any], Callable[[], Any]] | None:
        with self._changed:
            while not self._closed:
                for org_id, queue in self._waiting.items():
                    if self._running.get(org_id, 0) < self._own.get(org_id, self._per_org):
                        return self._take(org_id, queue)
                self._changed.wait()
            return None

    def _take(self, org_id: uuid.UUID, queue: deque[_Waiting]) -> tuple[uuid.UUID, Future[Any], Callable[[], Any]]:
        future, call = queue.popleft()
        if queue:
            self._waiting.move_to_end(org_id)
        else:
            del self._waiting[org_id]
        self._running[org_id] = self._running.get(org_id, 0) + 1
        return org_id, future, call


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001  (whoever waits for the future gets it, whatever it is)
        future.set_exception(error)


def _drop_cancelled(queue: deque[_Waiting]) -> None:
    """What was cancelled while it waited must not count as waiting."""
    if any(future.cancelled() for future, _ in queue):
        kept = [entry for entry in queue if not entry[0].cancelled()]
        queue.clear()
        queue.extend(kept)
