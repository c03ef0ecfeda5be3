"""Build and parse all object keys: of segments, and of raw objects in the default layout."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from urllib.parse import quote, unquote

from lakerunner.model.errors import BadInput
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal, Table
from lakerunner.model.signals import SIGNALS, signal_named
from lakerunner.model.time import day_range

COOKED_PREFIX = "db/"
RAW_PREFIX = "otel-raw/"
#: The lowest limit among S3, GCS and Azure.
MAX_KEY_BYTES = 1_024
#: Leaves space for the other parts of a cooked key, whose lengths are known.
MAX_COLLECTOR_BYTES = 255

#: Keys as we make them. Workers check hundreds of them for each query.
_PLAIN = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WORDS = re.compile(r"[a-z]+")
_DAY = re.compile(r"\d{8}")
_HOUR = re.compile(r"[01]\d|2[0-3]")
_FILE = re.compile(r"tbl_(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?P<suffix>.*)\.parquet")


@dataclass(frozen=True, slots=True)
class CookedKey:
    """The key of one table of a segment."""

    org_id: uuid.UUID
    collector: str
    dateint: int
    signal: Signal
    hour: int
    segment_id: uuid.UUID
    table: Table

    def __str__(self) -> str:
        name = f"tbl_{self.segment_id}{self.table.suffix}.parquet"
        key = f"{day_prefix(self.org_id, self.collector, self.dateint)}{self.signal}/{self.hour:02d}/{name}"
        return check_key(key)


@dataclass(frozen=True, slots=True)
class RawKey:
    """The org, collector and signal of a raw object."""

    org_id: uuid.UUID
    collector: str
    signal: Signal


def check_key(key: str) -> str:
    """Return the key if it names the same object on every store; raise BadInput otherwise.

    >>> check_key("otel-raw/a b/100%.json")
    'otel-raw/a b/100%.json'
    """
    if len(key) <= MAX_KEY_BYTES and _PLAIN.fullmatch(key):
        return key
    if not key or key.startswith("/") or key.endswith("/"):
        raise _bad_key(key, "it is empty, or starts or ends with a slash")
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise _bad_key(key, "one of its parts is empty, '.' or '..'")
    if _CONTROL.search(key):
        raise _bad_key(key, "it contains a control character")
    try:
        size_bytes = len(key.encode())
    except UnicodeEncodeError:
        raise _bad_key(key, "it is not Unicode text") from None
    if size_bytes > MAX_KEY_BYTES:
        raise _bad_key(key[:80] + "…", f"it is longer than {MAX_KEY_BYTES} bytes")
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix with a final slash; the empty prefix means everything."""
    if not prefix:
        return prefix
    return check_key(prefix.removesuffix("/")) + "/"


def is_cooked(key: str) -> bool:
    """Return whether the key lies under `db/`, where segments are. Such objects are never inputs."""
    return key == COOKED_PREFIX.rstrip("/") or key.startswith(COOKED_PREFIX)


def segment_keys(segment: Segment) -> tuple[str, ...]:
    """Return the keys of all tables of a segment, with the table whose rows are counted first."""
    signal = signal_named(segment.signal)
    return tuple(
        str(
            CookedKey(
                segment.org_id, segment.collector, segment.dateint, signal, segment.hour, segment.segment_id, table
            )
        )
        for table in signal.tables
    )


def parse_cooked(key: str) -> CookedKey:
    """Parse a key that `CookedKey` made. Any other key under `db/` raises BadInput."""
    parts = check_key(key).split("/")
    if len(parts) != 7 or not is_cooked(key):
        raise _bad_key(key, "it is not db/org/collector/day/signal/hour/tbl_id.parquet")
    _, org, collector, day, signal_name, hour, name = parts
    file = _FILE.fullmatch(name)
    if not (_DAY.fullmatch(day) and _HOUR.fullmatch(hour) and file):
        raise _bad_key(key, "its day, hour or file name is malformed")
    signal = signal_named(signal_name)
    tables = [table for table in signal.tables if table.suffix == file["suffix"]]
    if not tables:
        raise _bad_key(key, f"{signal} has no table {file['suffix']!r}")
    day_range(int(day))
    parsed = CookedKey(
        _org(key, org), _decoded(collector), int(day), signal, int(hour), uuid.UUID(file["id"]), tables[0]
    )
    if str(parsed) != key:
        raise _bad_key(key, "it is not in canonical form")
    return parsed


def parse_raw(key: str) -> RawKey:
    """Parse a key of the default layout: `otel-raw/{org}/{collector}/…{logs|metrics|traces}…`.

    The signal is the first whole word after the collector that names one: a folder, or the start of a file name
    (`logs_123.binpb`).
    """
    if is_cooked(key):
        raise _bad_key(key, "objects under db/ are segments, never inputs")
    parts = check_key(key).split("/")
    if len(parts) < 4 or parts[0] + "/" != RAW_PREFIX:
        raise _bad_key(key, f"it is not {RAW_PREFIX}org/collector/…signal…")
    names = {signal.name: signal for signal in SIGNALS}
    for part in parts[3:]:
        for word in _WORDS.findall(part.lower()):
            if word in names:
                return RawKey(_org(key, parts[1]), parts[2], names[word])
    raise _bad_key(key, f"none of {', '.join(names)} occurs after the collector")


def raw_prefix(org_id: uuid.UUID) -> str:
    return f"{RAW_PREFIX}{org_id}/"


def org_prefix(org_id: uuid.UUID) -> str:
    """Return the prefix of all segments of an org."""
    return f"{COOKED_PREFIX}{org_id}/"


def collector_prefix(org_id: uuid.UUID, collector: str) -> str:
    return f"{org_prefix(org_id)}{_encoded(collector)}/"


def day_prefix(org_id: uuid.UUID, collector: str, dateint: int) -> str:
    """Return the prefix of all segments of a collector on a day."""
    day_range(dateint)
    return f"{collector_prefix(org_id, collector)}{dateint:08d}/"


def _encoded(collector: str) -> str:
    """Encode a collector's name as one part of a key: letters, digits and `-_.~` stay, the rest is percent-encoded.

    >>> _encoded("eu/west 1")
    'eu%2Fwest%201'
    """
    if collector in ("", ".", ".."):
        raise BadInput(f"cannot use {collector!r} as the name of a collector")
    try:
        encoded = quote(collector, safe="")
    except UnicodeEncodeError:
        raise BadInput(f"cannot use {collector!r} as the name of a collector: it is not Unicode text") from None
    if len(encoded) > MAX_COLLECTOR_BYTES:
        raise BadInput(
            f"cannot use {collector[:40]!r}… as the name of a collector: it is too long",
            hint=f"its encoded form may have at most {MAX_COLLECTOR_BYTES} bytes",
        )
    return encoded


def _decoded(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise BadInput(f"cannot read {part!r} as the name of a collector: it is not UTF-8") from None


def _org(key: str, part: str) -> uuid.UUID:
    try:
        org_id = uuid.UUID(part)
    except ValueError:
        raise _bad_key(key, f"{part!r} is not the id of an org") from None
    if str(org_id) != part.lower():
        raise _bad_key(key, f"{part!r} is not the id of an org")
    return org_id


def _bad_key(key: str, reason: str) -> BadInput:
    return BadInput(f"cannot use the key {key!r}: {reason}")
