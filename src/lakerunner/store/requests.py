"""Counts the requests of this process to buckets, by the org whose objects they concern, until somebody takes them.

The org follows from the key: those of segments, and of raw objects in the default layout, have it. Whoever reads
another layout says for whom (`charged_to`). Requests of no org, as listings of a whole bucket, are nobody's.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from lakerunner.store.keys import COOKED_PREFIX, RAW_PREFIX

#: The owner of requests that concern no org, or one org more than are counted apart.
NOBODY: Final = uuid.UUID(int=0)
#: Orgs that are counted apart until the counts are taken.
_MOST_ORGS = 10_000
#: What the store calls its requests -> what a provider puts on the bill.
_BILLED = {"get_range": "get", "ping": "list"}

_charged: ContextVar[uuid.UUID | None] = ContextVar("charged", default=None)


class Requests(NamedTuple):
    """Requests of one kind for one org, and the bytes that they moved."""

    org_id: str
    operation: str
    requests: int
    bytes: int


class _Counts:
    """Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, org_id: str, operation: str, requests: int, moved_bytes: int) -> None:
        with self._lock:
            key = (org_id, operation)
            if key not in self._counts and len(self._counts) >= _MOST_ORGS:
                key = (str(NOBODY), operation)
            before = self._counts.get(key, (0, 0))
            self._counts[key] = (before[0] + requests, before[1] + moved_bytes)

    def take(self) -> list[Requests]:
        with self._lock:
            taken, self._counts = self._counts, {}
        return [Requests(*key, *counts) for key, counts in taken.items()]


_counts = _Counts()


@contextmanager
def charged_to(org_id: uuid.UUID) -> Iterator[None]:
    """Requests of this thread are the org's, whatever their keys say."""
    token = _charged.set(org_id)
    try:
        yield
    finally:
        _charged.reset(token)


def count_request(operation: str, keys: Iterable[str], moved_bytes: int) -> None:
    """Count one request about these keys: one for each of their orgs."""
    charged = _charged.get()
    orgs = {str(charged)} if charged is not None else {_org_of(key) for key in keys} or {str(NOBODY)}
    for org_id in orgs:
        _counts.add(org_id, _BILLED.get(operation, operation), 1, moved_bytes)


def take_requests() -> list[Requests]:
    """What was counted since it was taken last."""
    return _counts.take()


def add_requests(taken: Iterable[Sequence[object]]) -> None:
    """Count what was taken elsewhere: by another process, or by one that could not store it."""
    for org_id, operation, requests, moved_bytes in taken:
        _counts.add(str(org_id), str(operation), int(str(requests)), int(str(moved_bytes)))


def _org_of(key: str) -> str:
    """
    >>> _org_of("db/5f1c3a2e-0000-4000-8000-000000000001/col/20261117/logs/10/tbl_x.parquet")
    '5f1c3a2e-0000-4000-8000-000000000001'
    >>> _org_of("otel-raw/odd") == str(NOBODY)
    True
    """
    for prefix in (COOKED_PREFIX, RAW_PREFIX):
        if key.startswith(prefix):
            part = key[len(prefix) : len(prefix) + 36]
            try:
                return str(uuid.UUID(part))
            except ValueError:
                break
    return str(NOBODY)
