import socket
import time

import pytest

from lakerunner.index import leases
from lakerunner.index.database import Database
from lakerunner.index.session import Session
from lakerunner.model.errors import Conflict


def test_one_holder_at_a_time(database: Database) -> None:
    first = leases.acquire(database, "sweeper", "a", ttl_s=30)
    assert first is not None
    assert leases.acquire(database, "sweeper", "b", ttl_s=30) is None
    assert leases.acquire(database, "sweeper", "a", ttl_s=30) == first
    assert leases.acquire(database, "relay", "b", ttl_s=30) is not None


def test_an_expired_lease_passes_on_with_a_higher_token(database: Database) -> None:
    first = leases.acquire(database, "sweeper", "a", ttl_s=0.05)
    assert first is not None
    time.sleep(0.1)
    second = leases.acquire(database, "sweeper", "b", ttl_s=30)
    assert second is not None and second.token > first.token
    with database.transaction() as tx:
        leases.require_held(tx, second)
    with pytest.raises(Conflict, match="another process holds the lease"), database.transaction() as tx:
        leases.require_held(tx, first)


def test_released_it_is_free_at_once(database: Database) -> None:
    lease = leases.acquire(database, "sweeper", "a", ttl_s=30)
    assert lease is not None
    leases.release(database, lease)
    successor = leases.acquire(database, "sweeper", "b", ttl_s=30)
    assert successor is not None and successor.token > lease.token


def test_the_lease_of_a_killed_holder_is_free_at_once(database: Database) -> None:
    with Session(database, timeout_s=30) as session:
        leases.attach(session, "a")
        first = leases.acquire(database, "sweeper", "a", ttl_s=30)
        assert first is not None
        leases.expire_abandoned(database, "sweeper")
        assert leases.acquire(database, "sweeper", "b", ttl_s=30) is None
        # As the kernel does for a killed process.
        socket.socket(fileno=session.connection.fileno()).close()
    while (second := leases.acquire(database, "sweeper", "b", ttl_s=30)) is None:
        leases.expire_abandoned(database, "sweeper")
    assert second.token > first.token


def test_a_late_release_does_not_touch_the_successor(database: Database) -> None:
    first = leases.acquire(database, "sweeper", "a", ttl_s=0.05)
    time.sleep(0.1)
    leases.acquire(database, "sweeper", "b", ttl_s=30)
    assert first is not None
    leases.release(database, first)
    with database.transaction() as tx:
        assert leases.holders(tx) == {"sweeper": "b"}
