"""Storage profiles: which prefix of which bucket belongs to which org and collector."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from lakerunner.index.database import Connection
from lakerunner.model.errors import BadInput, Conflict
from lakerunner.model.signals import signal_named

_SCHEMES = ("file://", "s3://", "gs://", "az://")


@dataclass(frozen=True, slots=True)
class StorageProfile:
    """Raw objects of `bucket` whose key begins with `prefix` belong to `org_id` and `collector`.

    `signal` is None when the key itself names it. `credentials_ref` is the prefix of the environment variables that
    hold the credentials; the credentials themselves are never stored.
    """

    profile_id: uuid.UUID
    org_id: uuid.UUID
    collector: str
    bucket: str
    prefix: str
    signal: str | None = None
    region: str = ""
    endpoint: str = ""
    credentials_ref: str = ""


_COLUMNS = ", ".join(field.name for field in fields(StorageProfile))


def create_profile(tx: Connection, profile: StorageProfile) -> None:
    if not profile.bucket.startswith(_SCHEMES):
        raise BadInput(
            f"cannot use the bucket {profile.bucket!r}: its scheme is unknown",
            hint=f"start it with {', '.join(_SCHEMES)}",
        )
    if profile.prefix.startswith("db/"):
        raise BadInput("cannot read raw objects from db/: segments are written there")
    if profile.signal is not None:
        signal_named(profile.signal)
    profile = replace(profile, bucket=profile.bucket.rstrip("/"))
    values = [getattr(profile, field.name) for field in fields(profile)]
    places = ", ".join(["%s"] * len(values))
    done = tx.execute(
        f"INSERT INTO storage_profile ({_COLUMNS}) VALUES ({places}) ON CONFLICT DO NOTHING",  # noqa: S608  (our names)
        values,
    )
    if done.rowcount == 0:
        raise Conflict(f"cannot add the profile: {profile.bucket} {profile.prefix!r} already has a profile")


def list_profiles(tx: Connection) -> list[StorageProfile]:
    rows = tx.execute(f"SELECT {_COLUMNS} FROM storage_profile ORDER BY bucket, prefix").fetchall()  # noqa: S608
    return [StorageProfile(**row) for row in rows]


def profile_for(profiles: Iterable[StorageProfile], bucket: str, key: str) -> StorageProfile | None:
    """Return the matching profile with the longest prefix: the most specific one wins."""
    fitting = (profile for profile in profiles if profile.bucket == bucket and key.startswith(profile.prefix))
    return max(fitting, key=lambda profile: len(profile.prefix), default=None)
