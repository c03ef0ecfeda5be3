"""Rulers share the shards of groups, and one that loses a shard knows it before it has the shard again."""

from __future__ import annotations

from lakerunner.index.database import Database
from lakerunner.index.session import Session
from lakerunner.ruler.shards import SHARDS, Shards

TTL_S = 600.0


def set_lease(database: Database, shard: int, change: str) -> None:
    with database.transaction() as tx:
        tx.execute(f"UPDATE lease SET {change} WHERE name = %s", [f"ruler/{shard}"])


def test_alone_it_has_all_and_of_two_each_has_half(database: Database) -> None:
    with Session(database, TTL_S) as one, Session(database, TTL_S) as other:
        first = Shards(database, one, TTL_S)
        first.renew()
        assert len(first.held) == SHARDS
        second = Shards(database, other, TTL_S)
        second.renew()
        first.renew()
        # What is given up is given up the next time, when requests about it have ended.
        assert len(first.held) == SHARDS // 2 and not second.held
        busy = set(range(SHARDS // 2, SHARDS - 1))
        first.renew(busy)
        second.renew()
        assert list(second.held) == [SHARDS - 1]
        first.renew()
        second.renew()
        assert first.held.keys() | second.held.keys() == set(range(SHARDS)) and len(second.held) == SHARDS // 2


def test_a_shard_that_was_lost_is_missing_before_it_is_taken_again(database: Database) -> None:
    with Session(database, TTL_S) as session:
        shards = Shards(database, session, TTL_S)
        shards.renew()
        before = shards.held[3]
        # Another ruler had it, and its lease has expired too.
        set_lease(database, 3, "holder = 'other', token = token + 1, expires_at = '-infinity'")
        shards.renew()
        assert 3 not in shards.held and len(shards.held) == SHARDS - 1
        shards.renew()
        assert shards.held[3].token == before.token + 2
