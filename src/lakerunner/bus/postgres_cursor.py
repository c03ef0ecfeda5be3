"""Ownership of partitions in PostgreSQL: session locks that end with their holder, fencing tokens, fair shares."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import xxhash

from lakerunner.bus.partition_progress import Checkpoint
from lakerunner.index.database import Connection
from lakerunner.model.errors import Missing

TOPICS_HINT = "roles create the topics when they start; is bus.prefix the same everywhere?"

#: Full topic name and partition.
FullPartitionId = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """The members of a group, read from the locks. A dead member is gone at once, a silent one with its session."""

    #: Topic -> session id of each member that reads it -> number of partitions that the member holds.
    members: Mapping[str, Mapping[int, int]]
    #: Partitions that a member holds.
    held: frozenset[FullPartitionId]


class Cursors:
    """The cursors of one group over some topics, through one connection that holds the locks."""

    def __init__(self, connection: Connection, group: str, names: Sequence[str]) -> None:
        self._connection = connection
        self._group = group
        self.fences: dict[FullPartitionId, int] = {}
        self._partition_ids = self._find_partitions(names)
        self._keys = {_lock_key("owner", group, name, str(partition)): (name, partition)
                      for name, partition in self._partition_ids}  # fmt: skip
        self._lock_of = {partition_id: key for key, partition_id in self._keys.items()}
        self._member_keys = {_lock_key("member", group, name): name for name in names}

    def join(self) -> None:
        """Become a member, and create the group's cursors, so that upkeep keeps its unread messages from now on."""
        self._connection.execute(
            "INSERT INTO bus_cursor (group_name, topic, partition)"
            " SELECT %s, * FROM unnest(%s::text[], %s::int[]) ON CONFLICT DO NOTHING",
            [
                self._group,
                [name for name, _ in self._partition_ids],
                [partition for _, partition in self._partition_ids],
            ],
        )
        self._connection.execute(
            "SELECT pg_advisory_lock_shared(key) FROM unnest(%s::bigint[]) AS key", [list(self._member_keys)]
        )

    def membership(self) -> GroupMembership:
        rows = self._connection.execute(
            "SELECT classid::bigint AS high, objid::bigint AS low, pid FROM pg_locks"
            " WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).fetchall()
        holders: dict[int, list[int]] = {}
        for row in rows:
            holders.setdefault(_signed(row["high"] << 32 | row["low"]), []).append(row["pid"])
        owners = [(partition_id[0], holders[key][0]) for key, partition_id in self._keys.items() if key in holders]
        return GroupMembership(
            members={
                name: {pid: owners.count((name, pid)) for pid in holders.get(key, ())}
                for key, name in self._member_keys.items()
            },
            held=frozenset(partition_id for key, partition_id in self._keys.items() if key in holders),
        )

    def wanted(self, membership: GroupMembership) -> list[FullPartitionId]:
        """Return free partitions to take, up to our share."""
        chosen: list[FullPartitionId] = []
        for name, share, mine in self._shares(membership):
            free = [
                partition_id
                for partition_id in self._partition_ids
                if partition_id[0] == name and partition_id not in membership.held
            ]
            # Random, so that members that balance at the same moment seldom try for the same partitions.
            random.shuffle(free)
            chosen += free[: max(0, share - len(mine))]
        return chosen

    def excess(self, membership: GroupMembership) -> list[FullPartitionId]:
        """Return our partitions above our share."""
        return [partition_id for _, share, mine in self._shares(membership) for partition_id in mine[share:]]

    def acquire(self, partition_id: FullPartitionId) -> Checkpoint | None:
        """Take a free partition and fence off its last owner; None when another member was faster."""
        row = self._connection.execute(
            "SELECT pg_try_advisory_lock(%s) AS got", [self._lock_of[partition_id]]
        ).fetchone()
        if row is None or not row["got"]:
            return None
        found = self._connection.execute(
            "UPDATE bus_cursor SET fence = fence + 1 WHERE group_name = %s AND topic = %s AND partition = %s"
            " RETURNING fence, committed, handed, attempts, alone, member",
            [self._group, *partition_id],
        ).fetchone()
        assert found is not None
        self.fences[partition_id] = found["fence"]
        return Checkpoint(found["committed"], found["handed"], found["attempts"], found["alone"], found["member"])

    def save(self, checkpoints: Mapping[FullPartitionId, Checkpoint]) -> set[FullPartitionId]:
        """Write the checkpoints of partitions whose fence is still ours; return the other partitions."""
        rows = self._connection.execute(
            "UPDATE bus_cursor c SET committed = m.committed, handed = m.handed, attempts = m.attempts,"
            " alone = m.alone, member = m.member"
            " FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::bool[],"
            " %s::text[]) AS m (topic, partition, fence, committed, handed, attempts, alone, member)"
            " WHERE c.group_name = %s AND c.topic = m.topic AND c.partition = m.partition AND c.fence = m.fence"
            " RETURNING c.topic, c.partition",
            [
                [name for name, _ in checkpoints],
                [partition for _, partition in checkpoints],
                [self.fences.get(partition_id, -1) for partition_id in checkpoints],
                [checkpoint.committed for checkpoint in checkpoints.values()],
                [checkpoint.handed for checkpoint in checkpoints.values()],
                [checkpoint.attempts for checkpoint in checkpoints.values()],
                [checkpoint.alone for checkpoint in checkpoints.values()],
                [checkpoint.member for checkpoint in checkpoints.values()],
                self._group,
            ],
        ).fetchall()
        return set(checkpoints) - {(row["topic"], row["partition"]) for row in rows}

    def release(self, partition_ids: Iterable[FullPartitionId]) -> None:
        released = list(partition_ids)
        self._connection.execute(
            "SELECT pg_advisory_unlock(key) FROM unnest(%s::bigint[]) AS key", [[self._lock_of[p] for p in released]]
        )
        for partition_id in released:
            self.fences.pop(partition_id, None)

    def _shares(self, membership: GroupMembership) -> Iterable[tuple[str, int, list[FullPartitionId]]]:
        """Yield per topic our share and our partitions. The shares of all members add up to all partitions."""
        me = self._connection.info.backend_pid
        for name in self._member_keys.values():
            count = sum(partition_id[0] == name for partition_id in self._partition_ids)
            share = fair_share(name, count, membership.members[name], me)
            yield name, share, sorted(partition_id for partition_id in self.fences if partition_id[0] == name)

    def _find_partitions(self, names: Sequence[str]) -> list[FullPartitionId]:
        rows = self._connection.execute(
            "SELECT topic, partition FROM bus_partition WHERE topic = ANY(%s) ORDER BY topic, partition", [list(names)]
        ).fetchall()
        for name in names:
            if not any(row["topic"] == name for row in rows):
                raise Missing(f"cannot read the topic {name}: it does not exist", hint=TOPICS_HINT)
        return [(row["topic"], row["partition"]) for row in rows]


def fair_share(name: str, partitions: int, members: Mapping[int, int], me: int) -> int:
    """Return our number of partitions of a topic, as even as possible. `members` maps each to the number it holds.

    The remainder goes to the members that hold the most, so that partitions move only if needed. Ties are ordered
    differently per topic, so that no member gets the remainder of every topic.

    >>> [fair_share("t", 5, {7: 1, 8: 0, 9: 4}, member) for member in (9, 7, 8)]
    [2, 2, 1]
    """
    if me not in members:
        return 0
    ranked = sorted(members, key=lambda pid: (-members[pid], zlib.crc32(f"{name} {pid}".encode()), pid))
    return partitions // len(members) + (ranked.index(me) < partitions % len(members))


def _lock_key(*parts: str) -> int:
    """Return the number of an advisory lock: a 64-bit hash, so that collisions are practically impossible."""
    return _signed(xxhash.xxh3_64_intdigest("\0".join(("lakerunner-bus", *parts)).encode()))


def _signed(key: int) -> int:
    return key - (1 << 64) if key >= 1 << 63 else key
