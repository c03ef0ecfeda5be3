"""Storage profiles: which prefix of which bucket belongs to which org and collector."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from lakerunner.index.database import Connection
from lakerunner.model.errors import BadInput, Conflict, Missing
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
    #: How long after its ingest a raw object is deleted; None keeps it.
    delete_raw_after_s: float | None = None


#: A raw object is kept at least this long after its ingest, for people who look into it and for late commits.
LEAST_RAW_S = 600.0

_COLUMNS = ", ".join(field.name for field in fields(StorageProfile))


def create_profile(tx: Connection, profile: StorageProfile) -> StorageProfile:
    profile = _checked(profile)
    values = [getattr(profile, field.name) for field in fields(profile)]
    places = ", ".join(["%s"] * len(values))
    done = tx.execute(
        f"INSERT INTO storage_profile ({_COLUMNS}) VALUES ({places}) ON CONFLICT DO NOTHING",  # noqa: S608  (our names)
        values,
    )
    if done.rowcount == 0:
        raise Conflict(f"cannot add the profile: {profile.bucket} {profile.prefix!r} already has a profile")
    return profile


def change_profile(tx: Connection, profile_id: uuid.UUID, changes: Mapping[str, Any]) -> StorageProfile:
    """Change fields of a profile. Its bucket and prefix stay: other ones make another profile."""
    return create_profile(tx, replace(remove_profile(tx, profile_id), **changes))


def remove_profile(tx: Connection, profile_id: uuid.UUID) -> StorageProfile:
    row = tx.execute(
        f"DELETE FROM storage_profile WHERE profile_id = %s RETURNING {_COLUMNS}",  # noqa: S608  (our names)
        [profile_id],
    ).fetchone()
    if row is None:
        raise Missing(f"cannot find the profile {profile_id}", hint="see `lakerunner profile list`")
    return StorageProfile(**row)


def _checked(profile: StorageProfile) -> StorageProfile:
    if not profile.bucket.startswith(_SCHEMES):
        raise BadInput(
            f"cannot use the bucket {profile.bucket!r}: its scheme is unknown",
            hint=f"start it with {', '.join(_SCHEMES)}",
        )
    if profile.prefix.startswith("db/"):
        raise BadInput("cannot read raw objects from db/: segments are written there")
    if profile.signal is not None:
        signal_named(profile.signal)
    if profile.delete_raw_after_s is not None and not LEAST_RAW_S <= profile.delete_raw_after_s < float("inf"):
        raise BadInput(
            f"cannot delete raw objects after {profile.delete_raw_after_s:g} s: they are kept for {LEAST_RAW_S:g} s",
            hint="give a longer time, or none to keep them",
        )
    return replace(profile, bucket=profile.bucket.rstrip("/"))


def list_profiles(tx: Connection) -> list[StorageProfile]:
    rows = tx.execute(f"SELECT {_COLUMNS} FROM storage_profile ORDER BY bucket, prefix").fetchall()  # noqa: S608
    return [StorageProfile(**row) for row in rows]


def profile_for(profiles: Iterable[StorageProfile], bucket: str, key: str) -> StorageProfile | None:
    """Return the matching profile with the longest prefix: the most specific one wins."""
    fitting = (profile for profile in profiles if profile.bucket == bucket and key.startswith(profile.prefix))
    return max(fitting, key=lambda profile: len(profile.prefix), default=None)
