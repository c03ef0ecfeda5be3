"""Recover lost events: one process lists the buckets periodically and records objects missing in the ledger."""

from __future__ import annotations

import os
import socket
import time
import uuid

from lakerunner.index import leases
from lakerunner.index.database import Database
from lakerunner.intake.backfill import BackfillProgress, OnProgress, backfill
from lakerunner.intake.mapping import KeyMap
from lakerunner.intake.metrics import RECONCILE_FAILURES, RECONCILED_TIMESTAMP
from lakerunner.intake.record import Recorder
from lakerunner.intake.rejections import RejectedKind, Rejection, clear_rejections, put_rejected
from lakerunner.model.errors import LakeError
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.settings import IntakeSettings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

_LEASE = "intake-reconcile"
_SOURCE = "reconcile"
#: Longer than a page takes. The lease is renewed with every page.
_LEASE_S = 60.0
#: Listing takes at most this share of the time, so very large buckets are listed less often.
_MAX_SHARE = 0.1


class _Interrupted(Exception):
    """A stop was requested, or another process took the lease. The next round starts over."""


class Reconciler:
    def __init__(self, recorder: Recorder, database: Database, settings: IntakeSettings) -> None:
        self._recorder = recorder
        self._database = database
        self._settings = settings
        self._holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"

    def run(self, stop: Stop) -> None:
        """Run a round at once, because events may have been lost while no process ran, then one per interval."""
        while not stop:
            started = time.monotonic()
            try:
                self.round(stop)
            except _Interrupted:
                log().info("reconciliation interrupted")
            except LakeError as error:
                SWALLOWED.labels("intake_reconcile").inc()
                log().warning("reconciliation failed", error=str(error))
            took_s = time.monotonic() - started
            stop.wait(max(self._settings.reconcile_interval_s, took_s * (1 / _MAX_SHARE - 1)))

    def round(self, stop: Stop) -> bool:
        """List all buckets once, also when some of them fail. Returns False when another process is doing it."""
        lease = leases.acquire(self._database, _LEASE, self._holder, _LEASE_S)
        if lease is None:
            return False

        def keep_lease(_: BackfillProgress) -> None:
            if stop or leases.acquire(self._database, _LEASE, self._holder, _LEASE_S) is None:
                raise _Interrupted

        try:
            key_map = self._recorder.key_map()
            failures = 0
            for bucket in sorted(key_map.buckets):
                if bucket.startswith("file:") and self._settings.folder:
                    continue  # FolderSource already lists it
                for prefix in key_map.prefixes(bucket):
                    failures += not self._list(bucket, prefix, key_map, keep_lease)
        finally:
            leases.release(self._database, lease)
        if not failures:
            RECONCILED_TIMESTAMP.set(time.time())
        return True

    def _list(self, bucket: str, prefix: str, key_map: KeyMap, on_page: OnProgress) -> bool:
        """List one prefix. Its trouble is its own: it is reported, and the next round tries again."""
        try:
            done = backfill(
                self._recorder, bucket, prefix, settle_s=self._settings.folder_settle_s, on_page=on_page,
                source=_SOURCE, key_map=key_map,
            )  # fmt: skip
        except (LakeError, OSError, ValueError) as error:
            RECONCILE_FAILURES.labels(bucket).inc()
            log().warning("bucket not reconciled", bucket=bucket, prefix=prefix, error=str(error))
            with self._database.transaction() as tx:
                put_rejected(tx, [Rejection(RejectedKind.UNUSABLE, _SOURCE, str(error), bucket, prefix)])
            return False
        if done.counts["recorded"]:
            log().warning("lost events recovered", bucket=bucket, prefix=prefix, **done.counts)
        with self._database.transaction() as tx:
            clear_rejections(tx, [(bucket, prefix)])
        return True
