"""The buckets that may be read: the one at store.url and those of profiles, each opened once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import urlsplit

from lakerunner.index.profiles import StorageProfile
from lakerunner.model.errors import Bug
from lakerunner.runtime.settings import Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store

#: Scheme -> (option of the store, suffix of the environment variable). A profile's `credentials_ref` is the prefix.
_CREDENTIALS = {
    "s3": (("access_key_id", "ACCESS_KEY_ID"), ("secret_access_key", "SECRET_ACCESS_KEY")),
    "gs": (("service_account_key", "SERVICE_ACCOUNT_KEY"),),
    "az": (("account_name", "ACCOUNT_NAME"), ("account_key", "ACCOUNT_KEY")),
}
_OPTIONAL = {"s3": (("session_token", "SESSION_TOKEN"),)}


def own_bucket(settings: Settings) -> str:
    """Return the address of the bucket at store.url, as ledger and profiles write it."""
    return settings.store_url.rstrip("/")


def config_of(settings: Settings, bucket: str, profiles: Iterable[StorageProfile]) -> StoreConfig:
    """Return how to reach a bucket: from the settings for the bucket at store.url, else from its profile."""
    own = StoreConfig.of(settings)
    if bucket == own_bucket(settings):
        return own
    mine = [profile for profile in profiles if profile.bucket == bucket]
    if not mine and _is_moved(bucket, own_bucket(settings)):
        return own
    if not mine:
        raise Bug(f"cannot open {bucket}: no profile names it")
    chosen = next((profile for profile in mine if profile.credentials_ref or profile.endpoint), mine[0])
    return replace(
        own,
        url=bucket,
        region=chosen.region,
        endpoint=chosen.endpoint,
        credentials=_variables(urlsplit(bucket).scheme, chosen.credentials_ref),
        create=False,
    )


def _is_moved(bucket: str, own: str) -> bool:
    """Whether an address is that of our own folder before it was moved: of a folder only the name counts."""
    return bucket.startswith("file:") and own.startswith("file:") and _name(bucket) == _name(own)


def _name(bucket: str) -> str:
    return bucket.rpartition("/")[2]


def _variables(scheme: str, ref: str) -> tuple[tuple[str, str], ...]:
    """Name the variables of a `credentials_ref`: ACME means ACME_ACCESS_KEY_ID and ACME_SECRET_ACCESS_KEY on S3."""
    if not ref:
        return ()
    optional = ((option, f"{ref}_{end}") for option, end in _OPTIONAL.get(scheme, ()))
    return (
        *((option, f"{ref}_{end}") for option, end in _CREDENTIALS.get(scheme, ())),
        *((option, variable) for option, variable in optional if variable in os.environ),
    )


class Buckets:
    """A cache of open stores. A bucket whose profile changed is opened again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._open: dict[str, ObjectStore] = {}

    def store(self, bucket: str, profiles: Iterable[StorageProfile]) -> ObjectStore:
        config = config_of(self._settings, bucket, profiles)
        with self._lock:
            store = self._open.get(bucket)
            if store is None or store.config != config:
                store = self._open[bucket] = open_store(config)
            return store


def resolve_address(buckets: Iterable[str], address: str, key: str) -> tuple[str, str] | None:
    """Return the configured bucket of an event's (s3://name, key), and the key within it.

    A configured address may have a path (`s3://name/some/folder`). The longest match wins, and its keys are relative
    to it.
    """
    fitting = [
        bucket
        for bucket in buckets
        if bucket == address or (bucket.startswith(address + "/") and key.startswith(bucket[len(address) + 1 :] + "/"))
    ]
    if not fitting:
        return None
    bucket = max(fitting, key=len)
    return (bucket, key) if bucket == address else (bucket, key[len(bucket) - len(address) :])
