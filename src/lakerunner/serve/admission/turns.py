"""A thread pool in which orgs take turns, so a hundred queries of one org delay another org's query by only one."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from lakerunner.model.errors import LakeError

T = TypeVar("T")


class TooMany(LakeError):
    """The org already has the maximum number of queries waiting. A later retry may succeed."""

    code = "too_many"
    retryable = True


def too_many(waiting: int) -> TooMany:
    return TooMany(
        f"cannot accept another query: {waiting} of this org are waiting (api.org_waiting)",
        hint="retry later, or send fewer queries at once",
    )


_Waiting = tuple["Future[Any]", Callable[[], Any]]
#: Calls what wakes a thread, now or soon.
Wake = Callable[[Callable[[], object]], object]


def at_once(call: Callable[[], object]) -> None:
    call()


class Turns:
    """Runs calls in `threads` threads, with orgs in rotation. At most `per_org` calls of one org run at once."""

    def __init__(self, threads: int, per_org: int, waiting_per_org: int) -> None:
        self._per_org = per_org
        #: Orgs with their own `per_org`, as given with their last call.
        self._per_org_overrides: dict[uuid.UUID, int] = {}
        self._waiting_per_org = waiting_per_org
        self._lock = threading.Lock()
        #: What each idle thread waits for. The last one is woken first: its memory is still in the caches of the core.
        self._idle: list[threading.Lock] = []
        #: Waiting calls of each org, in the order of the orgs' turns.
        self._waiting: OrderedDict[uuid.UUID, deque[_Waiting]] = OrderedDict()
        self._running: dict[uuid.UUID, int] = {}
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"query-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self, org_id: uuid.UUID, call: Callable[[], T], per_org: int | None = None, wake: Wake = at_once
    ) -> Future[T]:
        """Run the call when its turn comes. `per_org` overrides how many calls of this org may run at once.

        `wake` wakes a sleeping thread, so that a caller with more to do first can do that: both need the interpreter
        lock, and taking it from a running thread costs more than the wait.
        """
        future: Future[T] = Future()
        with self._lock:
            if per_org is None or per_org == self._per_org:
                self._per_org_overrides.pop(org_id, None)
            else:
                self._per_org_overrides[org_id] = per_org
            queue = self._waiting.setdefault(org_id, deque())
            _drop_cancelled(queue)
            if len(queue) >= self._waiting_per_org:
                raise too_many(len(queue))
            queue.append((future, call))
            sleeping = self._idle.pop() if self._idle else None
        if sleeping is not None:
            wake(sleeping.release)
        return future

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for queue in self._waiting.values():
                for future, _ in queue:
                    future.cancel()
            idle, self._idle = self._idle, []
        for sleeping in idle:
            sleeping.release()

    def _work(self) -> None:
        awake = threading.Lock()
        awake.acquire()
        while self._work_once(awake):
            pass

    def _work_once(self, awake: threading.Lock) -> bool:
        """Run the next call; False at the end. Afterwards this thread holds nothing of its answer."""
        taken = self._next(awake)
        if taken is None:
            return False
        org_id, future, call = taken
        tell = _run(future, call) if future.set_running_or_notify_cancel() else None
        # This thread looks for the next call itself, so nobody else needs to be woken.
        with self._lock:
            self._running[org_id] -= 1
            if not self._running[org_id]:
                del self._running[org_id]
        if tell is not None:
            # Last, because who waits for it needs the interpreter lock.
            tell()
        return True

    def _next(self, awake: threading.Lock) -> tuple[uuid.UUID, Future[Any], Callable[[], Any]] | None:
        """The next call whose turn it is; None at the end. `awake` is held; who releases it wakes this thread."""
        while True:
            with self._lock:
                if self._closed:
                    return None
                for org_id, queue in self._waiting.items():
                    if self._running.get(org_id, 0) < self._per_org_overrides.get(org_id, self._per_org):
                        taken = self._take(org_id, queue)
                        # Limits may have changed: others may have their turn too.
                        if self._waiting and self._idle:
                            self._idle.pop().release()
                        return taken
                self._idle.append(awake)
            awake.acquire()

    def _take(self, org_id: uuid.UUID, queue: deque[_Waiting]) -> tuple[uuid.UUID, Future[Any], Callable[[], Any]]:
        future, call = queue.popleft()
        if queue:
            self._waiting.move_to_end(org_id)
        else:
            del self._waiting[org_id]
        self._running[org_id] = self._running.get(org_id, 0) + 1
        return org_id, future, call


def _run(future: Future[Any], call: Callable[[], Any]) -> Callable[[], None]:
    """Run the call. Returns what tells its waiter."""
    try:
        return partial(future.set_result, call())
    except BaseException as error:  # noqa: BLE001  (the waiter gets every exception)
        return partial(future.set_exception, error)


def _drop_cancelled(queue: deque[_Waiting]) -> None:
    """Remove cancelled calls, so that they do not count as waiting."""
    if queue and any(future.cancelled() for future, _ in queue):
        kept = [entry for entry in queue if not entry[0].cancelled()]
        queue.clear()
        queue.extend(kept)
