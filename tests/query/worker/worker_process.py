"""`python -m tests.query.worker.worker_process`: a query worker as its own process, from LAKERUNNER_* variables.

Two more make it worse than it is: SLOW_STORE_S is waited before every object comes, LEAK_BYTES are lost by every
request.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

from lakerunner.query.fanout.answer import Check, SegmentAnswer
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.fanout.protocol import ScanRequest
from lakerunner.query.worker.role import QueryWorker
from lakerunner.runtime.run import run_role
from lakerunner.runtime.settings.load import load_settings
from lakerunner.store.object_store import ObjectStore

LOST: list[bytearray] = []


def make_slow(seconds: float) -> None:
    get = ObjectStore.get

    def slow(self: ObjectStore, key: str, *, etag: str | None = None) -> bytes:
        time.sleep(seconds)
        return get(self, key, etag=etag)

    ObjectStore.get = slow  # type: ignore[method-assign]


def make_leak(size_bytes: int) -> None:
    scan = LocalWorkers.scan

    def leaking(self: LocalWorkers, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        # Written to, so that it is there and not only promised.
        LOST.append(bytearray(b"x") * size_bytes)
        return scan(self, request, check)

    LocalWorkers.scan = leaking  # type: ignore[method-assign]


if __name__ == "__main__":
    if slow_s := float(os.environ.get("SLOW_STORE_S", 0)):
        make_slow(slow_s)
    if leak_bytes := int(os.environ.get("LEAK_BYTES", 0)):
        make_leak(leak_bytes)
    sys.exit(run_role(QueryWorker, load_settings(env=os.environ)))
