"""Find the owner of a raw object: by storage profile, else by the default layout, else the default org."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.index.profiles import StorageProfile, profile_for
from lakerunner.model.errors import BadInput
from lakerunner.model.signals import SIGNALS
from lakerunner.store.keys import RAW_PREFIX, check_key, collector_prefix, is_cooked, parse_raw

DEFAULT_COLLECTOR = "default"
#: Prefixes that are read without a profile: `otel-raw/` for any signal, and one per signal.
RAW_PREFIXES = (RAW_PREFIX, *(f"{signal}-raw/" for signal in SIGNALS))

_SIGNAL_NAMES = frozenset(signal.name for signal in SIGNALS)
_WORD = re.compile(r"[a-z]+")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
#: Suffixes of files that are still being written. Only for folders: objects in a bucket are always complete.
_UNFINISHED = (".tmp", ".part", ".partial")


@dataclass(frozen=True, slots=True)
class ObjectOwner:
    """The org, collector and signal that an object belongs to."""

    org_id: uuid.UUID
    collector: str
    signal: str


@dataclass(frozen=True, slots=True)
class NotAnInput:
    """Never read: a segment, a folder marker or an unfinished file. It is counted but not stored."""


@dataclass(frozen=True, slots=True)
class Unmapped:
    """An object without an owner. It is stored as a rejection until a profile claims it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """A key that our stores cannot read."""

    reason: str


Mapped: TypeAlias = ObjectOwner | NotAnInput | Unmapped | Unusable
DefaultOrg: TypeAlias = Literal["folder", "always", "never"]


class KeyMap:
    """Maps keys to owners. An immutable snapshot of profiles and orgs."""

    def __init__(
        self,
        profiles: Iterable[StorageProfile],
        org_ids: Collection[uuid.UUID],
        own_bucket: str,
        default_org: DefaultOrg,
    ) -> None:
        self._profiles: dict[str, list[StorageProfile]] = {}
        for profile in profiles:
            self._profiles.setdefault(profile.bucket, []).append(profile)
        self._org_ids = frozenset(org_ids)
        self._own_bucket = own_bucket
        self._default_org = default_org == "always" or (default_org == "folder" and own_bucket.startswith("file:"))

    @property
    def buckets(self) -> frozenset[str]:
        """The configured buckets. No other bucket is ever read."""
        return frozenset({self._own_bucket, *self._profiles})

    def profiles_of(self, bucket: str) -> list[StorageProfile]:
        return self._profiles.get(bucket, [])

    def prefixes(self, bucket: str) -> list[str]:
        """Return the prefixes that cover every input of a bucket, without prefixes that another one covers."""
        wanted = {profile.prefix for profile in self.profiles_of(bucket)}
        if bucket == self._own_bucket:
            wanted.update(RAW_PREFIXES)
        return sorted(
            prefix for prefix in wanted if not any(prefix != other and prefix.startswith(other) for other in wanted)
        )

    def owner_of(self, bucket: str, key: str) -> Mapped:
        if is_cooked(key) or key.endswith("/") or (bucket.startswith("file:") and is_unfinished(key)):
            return NotAnInput()
        try:
            check_key(key)
        except BadInput as problem:
            return Unusable(problem.message)
        profile = profile_for(self.profiles_of(bucket), bucket, key)
        if profile is not None:
            return self._claimed(profile, key)
        if bucket != self._own_bucket or not key.startswith(RAW_PREFIXES):
            return Unmapped("no profile matches it, and it is under none of the raw prefixes")
        return self._unclaimed(key)

    def _claimed(self, profile: StorageProfile, key: str) -> Mapped:
        signal = profile.signal or signal_of(key, profile.prefix)
        if signal is None:
            return Unmapped("its key names no signal, and its profile sets none")
        return ObjectOwner(profile.org_id, profile.collector, signal)

    def _unclaimed(self, key: str) -> Mapped:
        part = key.split("/", 2)[1]
        if key.startswith(RAW_PREFIX) and _UUID.fullmatch(part):
            return self._of_layout(key)
        if not self._default_org:
            return Unmapped("no profile matches it")
        signal = signal_of(key, "")
        return ObjectOwner(DEFAULT_ORG_ID, DEFAULT_COLLECTOR, signal) if signal else Unmapped("its key names no signal")

    def _of_layout(self, key: str) -> Mapped:
        try:
            raw = parse_raw(key)
            collector_prefix(raw.org_id, raw.collector)
        except BadInput as problem:
            return Unmapped(problem.message)
        if raw.org_id not in self._org_ids:
            # Not given to the default org: data written for one org must not be shown to another.
            return Unmapped(f"there is no org {raw.org_id}")
        return ObjectOwner(raw.org_id, raw.collector, raw.signal.name)


def signal_of(key: str, prefix: str) -> str | None:
    """Return the first signal that occurs as a whole word in the key: after the prefix, else in the prefix.

    >>> signal_of("otel-raw/year=2026/month=11/day=15/hour=21/minute=32/logs_313124979.binpb.gz", "otel-raw/")
    'logs'
    """
    for text in (key[len(prefix) :], prefix):
        for word in _WORD.findall(text.lower()):
            if word in _SIGNAL_NAMES:
                return str(word)
    return None


def is_unfinished(key: str) -> bool:
    """Return whether a file of a folder is hidden or has a suffix of files being written."""
    name = key.rpartition("/")[2]
    return name.startswith(".") or name.endswith(_UNFINISHED)
