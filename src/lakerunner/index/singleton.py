"""The base class of roles with one leader at a time. The others stand by and take over when its lease expires."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from abc import abstractmethod

from lakerunner.index import leases
from lakerunner.index.leases import Lease
from lakerunner.index.role import IndexedRole
from lakerunner.index.session import Session
from lakerunner.model.errors import Conflict, LakeError, Unavailable
from lakerunner.runtime.metrics import ROLE_LEADER
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

#: How often a process that stands by looks whether the leader was killed.
_LOOK_S = 1.0


class SingletonRole(IndexedRole):
    """Implements `run`: stand by, lead, lose or release the lease. A subclass implements `lead`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        # The random part distinguishes a restarted process from its predecessor, which may still believe that it leads.
        self.holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        #: The rest of the session timeout is for the next look of those who stand by.
        self.lease_ttl_s = settings.bus.session_timeout_s * 0.6

    @abstractmethod
    def lead(self, lease: Lease, until: Stop) -> None:
        """Work as the leader until `until` is set, because the process stops or the lease is lost."""

    def run(self, stop: Stop) -> None:
        gauge = ROLE_LEADER.labels(role=self.name)
        gauge.set(0)
        with Session(self.database, self.lease_ttl_s) as session:
            leases.attach(session, self.holder)
            while not stop:
                if not session.is_alive:
                    raise Unavailable("cannot stand by: the session with the index was lost")
                leases.expire_abandoned(self.database, self.name)
                lease = leases.acquire(self.database, self.name, self.holder, self.lease_ttl_s)
                if lease is None:
                    stop.wait(min(_LOOK_S, self.lease_ttl_s / 3))
                    continue
                gauge.set(1)
                log().info("leading", token=lease.token)
                try:
                    self._lead_while_held(lease, session, stop)
                except Conflict as error:
                    # A former leader found out at a write. It stands by, like the others.
                    log().warning("lease lost", token=lease.token, error=str(error))
                    stop.wait(min(_LOOK_S, self.lease_ttl_s / 3))
                finally:
                    gauge.set(0)

    def _lead_while_held(self, lease: Lease, session: Session, stop: Stop) -> None:
        until = Stop()
        renewal = threading.Thread(target=self._renew, args=(lease, session, stop, until), name="lease", daemon=True)
        renewal.start()
        try:
            self.lead(lease, until)
        finally:
            until.request()
            renewal.join()
            try:
                leases.release(self.database, lease)
            except LakeError as error:
                # The lease expires anyway; the successor only waits a little longer.
                log().warning("lease not released", error=str(error))

    def _renew(self, lease: Lease, session: Session, stop: Stop, until: Stop) -> None:
        """Renew the lease. Stop leading a little before another process could take it."""
        held_until = time.monotonic() + lease.ttl_s
        while not until:
            if stop.wait(lease.ttl_s / 4):
                break
            if not session.is_alive:
                # Others may take the lease at any moment.
                log().warning("lease given up: the session was lost", token=lease.token)
                break
            try:
                asked_at = time.monotonic()
                renewed = leases.acquire(self.database, lease.name, lease.holder, lease.ttl_s)
                if renewed is None or renewed.token != lease.token:
                    log().warning("lease lost", token=lease.token)
                    break
                held_until = asked_at + lease.ttl_s
            except LakeError as error:
                if time.monotonic() > held_until - lease.ttl_s / 4:
                    log().warning("lease given up", token=lease.token, error=str(error))
                    break
        until.request()
