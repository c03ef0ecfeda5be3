"""Delete raw objects some time after their ingest, where their profile says so.

Only objects whose rows are in the lake: those in quarantine stay. An object that was overwritten is another object, so
its version is compared first. One that is gone already is recorded like the others: a sweeper that was killed between
deleting and recording did not record it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lakerunner.index import sweep_ledger
from lakerunner.index.database import Database
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.profiles import StorageProfile, list_profiles
from lakerunner.index.sweep_ledger import Entry
from lakerunner.intake.buckets import config_of
from lakerunner.model.errors import LakeError, Missing
from lakerunner.model.raw_object import CONTENT_VERSION
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.telemetry import log
from lakerunner.store.bucket import version_of
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store

#: Objects per transaction, and seconds per profile and round.
_BATCH, _PROFILE_S = 500, 20.0


def delete_raw_objects(settings: Settings, database: Database, lease: Lease | None = None) -> int:
    """Delete what is due, profile by profile; return how many objects. A bucket that fails does not stop the others."""
    with database.transaction() as tx:
        profiles = list_profiles(tx)
    deleted = 0
    for profile in profiles:
        if profile.delete_raw_after_s is None:
            continue
        try:
            store = open_store(config_of(settings, profile.bucket, profiles))
            deleted += _of_profile(database, profile, profiles, store, lease)
        except LakeError as error:
            SWALLOWED.labels("raw_objects").inc()
            log().warning("raw objects not deleted", bucket=profile.bucket, prefix=profile.prefix, error=str(error))
    return deleted


def _of_profile(
    database: Database,
    profile: StorageProfile,
    profiles: Sequence[StorageProfile],
    store: ObjectStore,
    lease: Lease | None,
) -> int:
    # A longer prefix within this one is another profile, with a time of its own.
    inner = [
        each.prefix
        for each in profiles
        if each.bucket == profile.bucket and each.prefix != profile.prefix and each.prefix.startswith(profile.prefix)
    ]
    deleted, end_s = 0, time.monotonic() + _PROFILE_S
    while time.monotonic() < end_s:
        rows = _due(database, profile)
        mine = [row for row in rows if not row["key"].startswith(tuple(inner))]
        found = [(row, _is_same(store, row["key"], row["version"])) for row in mine]
        same = [row["key"] for row, is_same in found if is_same]
        crash_point("sweep_before_raw")
        store.delete(same)
        crash_point("sweep_raw_deleted")
        with database.transaction() as tx:
            if lease is not None:
                require_held(tx, lease)
            sweep_ledger.record(tx, [_entry(row, is_same) for row, is_same in found if is_same is not False])
            if rows:
                _move_on(tx, profile, rows[-1]["ended_at"])
        deleted += len(same)
        if len(rows) < _BATCH:
            break
    return deleted


def _entry(row: dict[str, Any], was_there: bool | None) -> Entry:
    reason = "ingested" if was_there else "ingested, and gone already"
    return Entry("raw", reason, row["org_id"], row["signal"], row["key"], row["row_count"], row["size_bytes"])


def _due(database: Database, profile: StorageProfile) -> list[dict[str, Any]]:
    """Ingested objects of the profile that are old enough, after those of earlier rounds, in order of their end."""
    with database.transaction() as tx:
        return tx.execute(
            # All objects that ended in one transaction have one time, so a batch goes on to the last of them.
            "SELECT org_id, signal, key, version, row_count, size_bytes, ended_at FROM raw_object o"
            " WHERE state = 'done' AND bucket = %(bucket)s AND starts_with(key, %(prefix)s)"
            " AND ended_at > (SELECT raw_deleted_until FROM storage_profile WHERE profile_id = %(profile)s)"
            " AND ended_at < now() - make_interval(secs => %(age)s)"
            " ORDER BY ended_at FETCH FIRST %(limit)s ROWS WITH TIES",
            {
                "bucket": profile.bucket,
                "prefix": profile.prefix,
                "profile": profile.profile_id,
                "age": profile.delete_raw_after_s,
                "limit": _BATCH,
            },
        ).fetchall()


def _move_on(tx: Any, profile: StorageProfile, until: datetime) -> None:
    tx.execute(
        "UPDATE storage_profile SET raw_deleted_until = %s WHERE profile_id = %s AND raw_deleted_until < %s",
        [until, profile.profile_id, until],
    )


def _is_same(store: ObjectStore, key: str, version: str) -> bool | None:
    """Whether the object is still as it was ingested; None if it is gone."""
    try:
        meta = store.head(key)
        if version.startswith(CONTENT_VERSION):
            return store.content_version(key, meta.etag) == version
    except Missing:
        return None
    return version_of(meta) == version
