"""The bus in PostgreSQL only: fences, locks, offsets without gaps, upkeep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.bus.contract import Outgoing
from lakerunner.bus.postgres import PostgresBus, forget_expired
from lakerunner.bus.postgres_cursor import fair_share
from lakerunner.bus.topics import partition_of
from lakerunner.index.database import Database
from lakerunner.model.errors import Conflict, Missing, Unavailable
from tests.bus.conftest import PARTITIONS, TOPIC, BusUnderTest, finish, receive

ORG_PARTITION = partition_of("org", PARTITIONS)


@pytest.fixture
def kind() -> str:
    return "postgres"


def end_connections_of_consumers(database: Database) -> None:
    with database.transaction() as tx:
        tx.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
        )


def test_who_was_fenced_off_cannot_commit(under_test: BusUnderTest, database: Database) -> None:
    under_test.publish("a")
    with under_test.consumer() as consumer:
        (delivery,) = receive(consumer, 1)
        with database.transaction() as tx:
            tx.execute("UPDATE bus_cursor SET fence = fence + 1")
        consumer.done(delivery)
        with pytest.raises(Conflict):
            consumer.commit()
        assert [lag.behind for lag in under_test.bus.lag("g") if lag.partition == ORG_PARTITION] == [1]


def test_a_lost_connection_gives_the_partition_to_another_and_costs_no_attempt(
    under_test: BusUnderTest, database: Database
) -> None:
    under_test.publish("a")
    with under_test.consumer() as consumer:
        (delivery,) = receive(consumer, 1)
        end_connections_of_consumers(database)
        consumer.done(delivery)
        with pytest.raises(Unavailable):
            consumer.commit()
        again = receive(consumer, 1)
        assert [(each.payload, each.attempt) for each in again] == [(b"a", 1)]


def test_a_lost_partition_is_not_committed_over_its_successor(under_test: BusUnderTest, database: Database) -> None:
    under_test.publish("a", "b", "c")
    with under_test.consumer() as old:
        held = receive(old, 3)
        end_connections_of_consumers(database)
        with under_test.consumer() as successor:
            assert finish(successor, 3) == ["a", "b", "c"]
            under_test.publish("d")
            old.done(held[0])
            with pytest.raises(Unavailable):
                old.commit()
            committed = {lag.partition: lag.committed for lag in under_test.bus.lag("g")}
            assert committed[ORG_PARTITION] == 3


def test_publishers_that_meet_leave_no_gap_and_do_not_deadlock(under_test: BusUnderTest) -> None:
    keys = [f"key{number}" for number in range(8)]
    failures: list[BaseException] = []

    def publish(order: Callable[[list[str]], list[str]]) -> None:
        try:
            for number in range(30):
                under_test.bus.publish([Outgoing(TOPIC, key, f"{number}".encode()) for key in order(keys)])
        except BaseException as error:
            failures.append(error)
            raise

    threads = [
        threading.Thread(target=publish, args=(order,))
        for order in (list, lambda keys: keys[::-1], list, lambda keys: keys[::-1])
    ]
    for thread in threads:
        thread.start()
    seen: dict[int, list[int]] = {}
    with under_test.consumer() as consumer:
        deadline = time.monotonic() + 30
        while sum(map(len, seen.values())) < 960 and time.monotonic() < deadline and not failures:
            for delivery in consumer.poll(100, 0.2):
                seen.setdefault(delivery.partition, []).append(delivery.offset)
                consumer.done(delivery)
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(map(len, seen.values())) == 960
    assert all(offsets == list(range(len(offsets))) for offsets in seen.values())


def test_a_publisher_whose_host_vanished_does_not_block_others(under_test: BusUnderTest) -> None:
    with under_test.behind_proxy() as (proxy, remote), ExitStack() as stack:
        assert isinstance(remote.bus, PostgresBus)
        tx = stack.enter_context(remote.bus._database.transaction())
        remote.bus.publish_in(tx, [Outgoing(TOPIC, "org", b"never")])
        proxy.silence()
        under_test.publish("first")
        assert [(record.offset, record.payload) for record in under_test.bus.tail(TOPIC, 5)] == [(0, b"first")]
        proxy.resume()
        with pytest.raises(Unavailable):
            stack.close()


def test_a_role_starts_while_a_publisher_is_under_way(under_test: BusUnderTest, database: Database) -> None:
    bus = under_test.bus
    assert isinstance(bus, PostgresBus)
    impatient = Database(database.url, statement_timeout_s=0.5)
    with closing(impatient), database.transaction() as tx:
        bus.publish_in(tx, [Outgoing(TOPIC, "org", b"slow")])
        assert PostgresBus(under_test.settings.bus, impatient).ensure_topics() == []


def test_a_transaction_that_fails_publishes_nothing(under_test: BusUnderTest, database: Database) -> None:
    bus = under_test.bus
    assert isinstance(bus, PostgresBus)
    with pytest.raises(ZeroDivisionError), database.transaction() as tx:
        bus.publish_in(tx, [Outgoing(TOPIC, "org", b"never")])
        raise ZeroDivisionError
    under_test.publish("first")
    assert [(record.offset, record.payload) for record in bus.tail(TOPIC, 5)] == [(0, b"first")]


@given(st.text(), st.integers(0, 64), st.dictionaries(st.integers(1, 99), st.integers(0, 9), min_size=1, max_size=20))
def test_shares_are_even_cover_everything_and_then_stay(name: str, partitions: int, members: dict[int, int]) -> None:
    shares = {member: fair_share(name, partitions, members, member) for member in members}
    assert sum(shares.values()) == partitions
    assert max(shares.values()) - min(shares.values()) <= 1
    assert {member: fair_share(name, partitions, shares, member) for member in members} == shares


def test_a_topic_that_was_never_made_is_told(under_test: BusUnderTest) -> None:
    with under_test.consumer("g", "no.such.topic") as consumer, pytest.raises(Missing, match=r"no\.such\.topic"):
        consumer.poll(1, 0.1)


def forget(under_test: BusUnderTest, database: Database, *expired: str, limit: int = 100) -> int:
    """Upkeep for which everything is young, but what the named settings keep has expired."""
    kept = dict.fromkeys(("retention_s", "unread_retention_s", "dead_retention_s"), 3600.0)
    settings = under_test.settings.bus.model_copy(update={**kept, **dict.fromkeys(expired, 1e-6)})
    with database.transaction() as tx:
        return forget_expired(tx, settings, limit)


def test_upkeep_forgets_what_every_group_has_passed_and_nothing_else(
    under_test: BusUnderTest, database: Database
) -> None:
    under_test.publish("a", "b", "c")
    under_test.publish("letter", topic=f"dead.{TOPIC}")
    with under_test.consumer("fast") as fast, under_test.consumer("slow") as slow:
        assert finish(fast, 3) == ["a", "b", "c"]
        assert finish(slow, 1) == ["a"]
        assert forget(under_test, database) == 0
        assert forget(under_test, database, "retention_s") == 1
        assert [record.payload for record in under_test.bus.read(TOPIC)] == [b"b", b"c"]
        assert finish(slow, 2) == ["b", "c"]
    assert [record.payload for record in under_test.bus.read(f"dead.{TOPIC}")] == [b"letter"]


def test_a_topic_that_no_group_reads_is_bounded_too(under_test: BusUnderTest, database: Database) -> None:
    under_test.publish("a", "b", "c")
    under_test.publish("letter", topic=f"dead.{TOPIC}")
    assert forget(under_test, database) == 0
    assert forget(under_test, database, "retention_s") == 3
    assert [record.payload for record in under_test.bus.read(f"dead.{TOPIC}")] == [b"letter"]
    assert forget(under_test, database, "dead_retention_s") == 1


def test_a_group_that_is_gone_does_not_keep_messages_for_ever(under_test: BusUnderTest, database: Database) -> None:
    under_test.publish("a", "b")
    with under_test.consumer("gone") as gone:
        assert finish(gone, 1) == ["a"]
    assert forget(under_test, database, "unread_retention_s") == 2
    under_test.publish("c")
    with under_test.consumer("gone") as gone:
        assert finish(gone, 1) == ["c"], "a group that comes back goes on with what there is"


def test_a_batch_takes_the_oldest_messages_of_each_partition(under_test: BusUnderTest, database: Database) -> None:
    under_test.publish(*"abcde")
    assert forget(under_test, database, "retention_s", limit=2) == 2
    assert [record.payload for record in under_test.bus.read(TOPIC)] == [b"c", b"d", b"e"]


def test_a_new_group_starts_at_what_is_left(under_test: BusUnderTest, database: Database) -> None:
    under_test.publish("a", "b")
    with under_test.consumer("first") as first:
        assert finish(first, 1) == ["a"]
    assert forget(under_test, database, "retention_s") == 1
    with under_test.consumer("later") as later:
        assert finish(later, 1) == ["b"]
    assert sum(lag.behind for lag in under_test.bus.lag("later")) == 0


def test_a_consumer_leaves_no_connection_behind(under_test: BusUnderTest, database_url: str) -> None:
    def consumers() -> int:
        with psycopg.connect(database_url) as connection:
            row = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
        assert row is not None
        return int(row[0])

    with under_test.consumer() as consumer:
        consumer.poll(1, 0.1)
        assert consumers() == PARTITIONS + 1
    deadline = time.monotonic() + 5
    while consumers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert consumers() == 0
