"""Orgs: whose data it is."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from lakerunner.index.database import Connection
from lakerunner.model.errors import BadInput, Conflict, Missing

#: The org that the embedded default maps everything to. A fixed id, so that paths are the same on every machine.
DEFAULT_ORG_ID = uuid.UUID("00000000-0000-4000-8000-000000000001")
DEFAULT_ORG_NAME = "default"
_MAX_NAME = 128


@dataclass(frozen=True, slots=True)
class Org:
    org_id: uuid.UUID
    name: str
    created_at: datetime


def create_org(tx: Connection, name: str, org_id: uuid.UUID | None = None) -> Org:
    """Add an org; its name is a handle for people, its id is what paths and rows carry."""
    if not name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise BadInput(f"cannot name an org {name!r}", hint=f"use 1 to {_MAX_NAME} printable characters")
    row = tx.execute(
        "INSERT INTO org (org_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING org_id, name, created_at",
        [org_id or uuid.uuid4(), name],
    ).fetchone()
    if row is None:
        raise Conflict(f"cannot create the org {name!r}: its name or id is taken", hint="see `lakerunner org list`")
    return Org(**row)


def ensure_default_org(tx: Connection) -> None:
    """Make the org of the embedded default, unless it is there."""
    tx.execute(
        "INSERT INTO org (org_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING", [DEFAULT_ORG_ID, DEFAULT_ORG_NAME]
    )


def list_orgs(tx: Connection) -> list[Org]:
    rows = tx.execute("SELECT org_id, name, created_at FROM org ORDER BY name").fetchall()
    return [Org(**row) for row in rows]


def find_org(tx: Connection, name_or_id: str) -> Org:
    """The org of that name or id."""
    row = tx.execute(
        "SELECT org_id, name, created_at FROM org WHERE name = %s OR org_id::text = %s", [name_or_id, name_or_id]
    ).fetchone()
    if row is None:
        raise Missing(f"cannot find the org {name_or_id!r}", hint="see `lakerunner org list`")
    return Org(**row)
