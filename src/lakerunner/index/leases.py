"""Leases: one holder at a time, with a fencing token against a former holder that still believes to lead."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.index.database import Connection, Database, lake_errors
from lakerunner.index.session import Session
from lakerunner.model.errors import Conflict


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    holder: str
    #: Grows with every change of holder, so that a leader's writes can be checked against it.
    token: int
    ttl_s: float


def acquire(database: Database, name: str, holder: str, ttl_s: float) -> Lease | None:
    """Take the lease when it is free or expired, or renew our own. Returns None when another process has it."""
    with database.transaction() as tx:
        row = tx.execute(
            "INSERT INTO lease (name, holder, token, expires_at) VALUES (%(name)s, %(holder)s, 1,"
            " clock_timestamp() + make_interval(secs => %(ttl)s))"
            " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at,"
            " token = lease.token + (lease.holder <> excluded.holder)::int"
            " WHERE lease.holder = excluded.holder OR lease.expires_at < clock_timestamp() RETURNING token",
            {"name": name, "holder": holder, "ttl": ttl_s},
        ).fetchone()
    return None if row is None else Lease(name, holder, row["token"], ttl_s)


def release(database: Database, lease: Lease) -> None:
    """Give up the lease at once, so that a successor need not wait for it to expire."""
    with database.transaction() as tx:
        tx.execute(
            "UPDATE lease SET expires_at = '-infinity' WHERE name = %s AND holder = %s AND token = %s",
            [lease.name, lease.holder, lease.token],
        )


def attach(session: Session, holder: str) -> None:
    """Tie the leases of this holder to a lock of the session, for `expire_abandoned`."""
    with lake_errors():
        session.connection.execute(
            "SELECT pg_advisory_lock_shared(hashtextextended('lakerunner-lease ' || %s::text, 0))", [holder]
        )


def expire_abandoned(database: Database, name: str) -> None:
    """Free the lease of a holder that was killed: the lock of its session is gone. So nobody waits for the expiry.

    Only for leases whose holders call `attach` first.
    """
    with database.transaction() as tx:
        tx.execute(
            "UPDATE lease SET expires_at = '-infinity' WHERE name = %s AND expires_at > clock_timestamp()"
            " AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND (classid::bigint << 32 | objid::bigint) = hashtextextended('lakerunner-lease ' || holder, 0))",
            [name],
        )


def is_held(tx: Connection, lease: Lease) -> bool:
    """Whether the lease is held; then nobody takes it before the transaction ends."""
    row = tx.execute(
        "SELECT 1 FROM lease WHERE name = %s AND holder = %s AND token = %s AND expires_at > clock_timestamp()"
        " FOR SHARE",
        [lease.name, lease.holder, lease.token],
    ).fetchone()
    return row is not None


def require_held(tx: Connection, lease: Lease) -> None:
    """Fail a leader's transaction unless it still holds the lease, and keep the lease until the commit."""
    if not is_held(tx, lease):
        raise Conflict(f"cannot act as the leader of {lease.name}: another process holds the lease")


def forget_expired(tx: Connection, prefix: str) -> None:
    """Delete leases whose names begin so and that expired an hour ago: their holders had names of their own."""
    tx.execute(
        "DELETE FROM lease WHERE starts_with(name, %s) AND expires_at < clock_timestamp() - interval '1 hour'",
        [prefix],
    )


def holders(tx: Connection) -> dict[str, str]:
    """Return name -> holder of the leases that have not expired."""
    rows = tx.execute("SELECT name, holder FROM lease WHERE expires_at > clock_timestamp() ORDER BY name").fetchall()
    return {row["name"]: row["holder"] for row in rows}
