"""Which groups a ruler evaluates: groups fall into shards, and each shard's lease is held by one ruler.

A ruler takes its fair share of the shards: all of them when it is alone, half when there are two.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Collection

from lakerunner.index import leases
from lakerunner.index.database import Database
from lakerunner.index.leases import Lease
from lakerunner.index.rule_groups import GroupKey
from lakerunner.index.session import Session
from lakerunner.model.ids import hashed_id

#: Shards of all groups: the most rulers that can share the work.
SHARDS = 16
_PREFIX, _MEMBER = "ruler/", "ruler-member/"


def shard_of(key: GroupKey) -> int:
    """The shard of a group: always the same."""
    return hashed_id(b"shard", key.org_id.bytes, key.namespace.encode(), key.name.encode()).bytes[0] % SHARDS


class Shards:
    """The shards of this process. Used by one thread."""

    def __init__(self, database: Database, session: Session, ttl_s: float) -> None:
        self._database = database
        self._ttl_s = ttl_s
        self.holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        #: Shards whose groups are evaluated here.
        self.held: dict[int, Lease] = {}
        #: Shards that are given up the next time: requests about their alerts end before another ruler begins.
        self._leaving: dict[int, Lease] = {}
        leases.attach(session, self.holder)

    def renew(self, busy: Collection[int] = ()) -> None:
        """Renew what is held, give up what is more than a fair share and not busy, and take what is free."""
        leases.acquire(self._database, _MEMBER + self.holder, self.holder, self._ttl_s)
        with self._database.transaction() as tx:
            leases.forget_expired(tx, _MEMBER)
            holders = leases.holders(tx)
        members = max(1, sum(name.startswith(_MEMBER) for name in holders))
        share = -(-SHARDS // members)
        for shard in [shard for shard in self._leaving if shard not in busy]:
            leases.release(self._database, self._leaving.pop(shard))
        self._leaving |= {shard: self.held.pop(shard) for shard in sorted(self.held)[share:]}
        lost = set()
        for kept in (self.held, self._leaving):
            for shard, lease in list(kept.items()):
                renewed = leases.acquire(self._database, lease.name, self.holder, self._ttl_s)
                if renewed is None or renewed.token != lease.token:
                    del kept[shard]
                    lost.add(shard)
        for shard in range(SHARDS):
            if len(self.held) >= share:
                break
            name = f"{_PREFIX}{shard}"
            # What was lost is taken the next time: until then, all that is known of its groups is dropped.
            if shard in self.held or shard in self._leaving or shard in lost:
                continue
            if holders.get(name, self.holder) != self.holder:
                leases.expire_abandoned(self._database, name)
            taken = leases.acquire(self._database, name, self.holder, self._ttl_s)
            if taken is not None:
                self.held[shard] = taken

    def release(self) -> None:
        """Give up everything, so that others need not wait."""
        for lease in (*self.held.values(), *self._leaving.values()):
            leases.release(self._database, lease)
        self.held.clear()
        self._leaving.clear()
        member = leases.acquire(self._database, _MEMBER + self.holder, self.holder, self._ttl_s)
        if member is not None:
            leases.release(self._database, member)
