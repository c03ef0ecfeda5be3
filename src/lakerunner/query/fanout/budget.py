"""Limits of memory and time: per request, and for all requests of a query together."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from lakerunner.model.errors import LakeError, LimitHit
from lakerunner.query.fanout.answer import Check


class Bounded(Protocol):
    """The limits of a request."""

    @property
    def query_id(self) -> uuid.UUID: ...
    @property
    def time_left_s(self) -> float: ...
    @property
    def max_bytes(self) -> int: ...


class Budget:
    """The budget of one request, shared by its threads."""

    def __init__(self, budgets: Budgets, request: Bounded, check: Check) -> None:
        self._budgets = budgets
        self._request = request
        self._check = check
        self._stopped: LakeError | None = None
        self.query_id = request.query_id
        #: The bytes that this request holds, out of those that its query holds.
        self.settled_bytes = 0

    def stop(self, error: LakeError) -> None:
        """Make every later `look` raise this error. The first error wins."""
        self._stopped = self._stopped or error

    def look(self, held_bytes: int = 0) -> None:
        """Raise if the answer is no longer wanted, is late, or is too large."""
        if self._stopped is not None:
            raise self._stopped
        self._check()
        if self._request.time_left_s < 0:
            raise LimitHit("cannot finish the scan: its time is over", hint="narrow the selectors or the time range")
        if self._budgets.held_bytes(self.query_id) + held_bytes > self._request.max_bytes:
            raise LimitHit(
                f"cannot hold the rows of the query: more than {self._request.max_bytes:,} bytes "
                "(api.max_samples, or query.max_scan_bytes)",
                hint="narrow the selectors or the time range",
            )

    def settle(self, held_bytes: int) -> None:
        """Charge bytes that the request holds until it ends."""
        self._budgets.settle(self, held_bytes)


class Budgets:
    """The budgets of all requests under way. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Budget] = set()
        self._held_bytes: Counter[uuid.UUID] = Counter()
        #: When the last request ended, by the monotonic clock. The reader may reset it to None.
        self.ended_at: float | None = None

    @contextmanager
    def opened(self, request: Bounded, check: Check) -> Iterator[Budget]:
        budget = Budget(self, request, check)
        with self._lock:
            self._open.add(budget)
        try:
            yield budget
        finally:
            with self._lock:
                self._open.discard(budget)
                self.ended_at = time.monotonic()
                if budget.settled_bytes:
                    self._free(budget)

    def held_bytes(self, query_id: uuid.UUID) -> int:
        # Mostly nobody holds any, and scans ask at every step.
        return self._held_bytes.get(query_id, 0) if self._held_bytes else 0

    def _free(self, budget: Budget) -> None:
        left_bytes = self._held_bytes[budget.query_id] - budget.settled_bytes
        if left_bytes:
            self._held_bytes[budget.query_id] = left_bytes
        else:
            del self._held_bytes[budget.query_id]

    def settle(self, budget: Budget, size_bytes: int) -> None:
        with self._lock:
            # A thread may outlive its request. Its bytes are freed with it, so they are not charged.
            if budget in self._open:
                budget.settled_bytes += size_bytes
                self._held_bytes[budget.query_id] += size_bytes

    def stop_largest(self, error: LakeError) -> bool:
        """Stop the requests of the query that holds the most memory; False if no request is under way."""
        with self._lock:
            bytes_by_query = {budget.query_id: self._held_bytes.get(budget.query_id, 0) for budget in self._open}
            if not bytes_by_query:
                return False
            largest = max(bytes_by_query, key=lambda query_id: bytes_by_query[query_id])
            for budget in self._open:
                if budget.query_id == largest:
                    budget.stop(error)
            return True

    def stop_all(self, error: LakeError) -> None:
        with self._lock:
            for budget in self._open:
                budget.stop(error)

    def __len__(self) -> int:
        return len(self._open)
