"""Orgs, the owners of data."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakerunner.model.errors import BadInput, Conflict, Missing

if TYPE_CHECKING:
    from lakerunner.index.database import Connection

#: The org that owns raw objects without a profile. Its id is fixed, so that paths are equal on every machine.
DEFAULT_ORG_ID = uuid.UUID("00000000-0000-4000-8000-000000000001")
DEFAULT_ORG_NAME = "default"
_MAX_NAME = 128


@dataclass(frozen=True, slots=True)
class Org:
    org_id: uuid.UUID
    name: str
    created_at: datetime


def create_org(tx: Connection, name: str, org_id: uuid.UUID | None = None) -> Org:
    """Add an org. People use its name; paths and rows carry its id."""
    if not name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise BadInput(
            f"cannot create the org {name!r}: the name is not valid", hint=f"use 1 to {_MAX_NAME} printable characters"
        )
    row = tx.execute(
        "INSERT INTO org (org_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING org_id, name, created_at",
        [org_id or uuid.uuid4(), name],
    ).fetchone()
    if row is None:
        raise Conflict(f"cannot create the org {name!r}: its name or id is taken", hint="see `lakerunner org list`")
    return Org(**row)


def ensure_default_org(tx: Connection) -> None:
    """Create the default org unless it exists."""
    tx.execute(
        "INSERT INTO org (org_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING", [DEFAULT_ORG_ID, DEFAULT_ORG_NAME]
    )


def list_orgs(tx: Connection) -> list[Org]:
    rows = tx.execute("SELECT org_id, name, created_at FROM org ORDER BY name").fetchall()
    return [Org(**row) for row in rows]


def has_several_orgs(tx: Connection) -> bool:
    return len(tx.execute("SELECT 1 FROM org LIMIT 2").fetchall()) > 1


def find_org(tx: Connection, name_or_id: str) -> Org:
    """Return the org with this name or id."""
    row = tx.execute(
        "SELECT org_id, name, created_at FROM org WHERE name = %s OR org_id::text = %s", [name_or_id, name_or_id]
    ).fetchone()
    if row is None:
        raise Missing(f"cannot find the org {name_or_id!r}", hint="see `lakerunner org list`")
    return Org(**row)
