"""The common form of all sources' events: the name of an object, or the reason why an event is unreadable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

#: How much of an unreadable event is stored for troubleshooting.
_MAX_BODY = 4_096
#: The lowest limit among S3, GCS and Azure.
_MAX_KEY_BYTES = 1_024
_MAX_BUCKET_BYTES = 255


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """A claim that an object was created. Size and etag are left out, because only the store is trusted for them.

    `bucket` is the address (`s3://name`), as in profiles.
    """

    bucket: str
    key: str
    #: The object's version, if its bucket keeps versions.
    version: str | None = None
    #: A second reading of the key, if it is unclear whether the sender encoded it.
    other_key: str | None = None

    @property
    def candidates(self) -> tuple[str, ...]:
        """The possible keys. Recording each one that exists is safe: every existing object is an input."""
        return (self.key,) if self.other_key is None else (self.key, self.other_key)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An event, or a part of one, that names no object. It is stored with its reason and then acknowledged."""

    reason: str
    body: str


@dataclass(frozen=True, slots=True)
class ParsedEvent:
    """One message of a source. It may name several objects or none, and be unreadable in parts."""

    objects: tuple[ObjectEvent, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    #: Number of irrelevant events: deletions, connection tests.
    ignored: int = 0

    @classmethod
    def of_parts(cls, parts: Iterable[ParsedEvent]) -> ParsedEvent:
        """Combine the events of one message. A message without events counts as ignored."""
        parts = tuple(parts) or (IGNORED,)
        return cls(
            tuple(event for part in parts for event in part.objects),
            tuple(problem for part in parts for problem in part.unreadable),
            sum(part.ignored for part in parts),
        )


IGNORED = ParsedEvent(ignored=1)


class EventProblem(Exception):
    """Raised inside parsers only; they turn it into an `Unreadable`."""


def unreadable(reason: str, body: bytes | str) -> ParsedEvent:
    """Build an unreadable event. The body is truncated, and characters that PostgreSQL cannot store are replaced."""
    text = body if isinstance(body, str) else body.decode(errors="replace")
    text = text[:_MAX_BODY].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    return ParsedEvent(unreadable=(Unreadable(reason, text),))


def json_of(body: bytes | str) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as reason:
        raise EventProblem(f"not JSON: {reason}") from None
    except UnicodeEncodeError:
        raise EventProblem("not JSON: it is not Unicode text") from None


def field(document: Any, *path: str) -> str:
    """Return the text at this path of an event."""
    value = document
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or not value:
        raise EventProblem(f"no text at {'.'.join(path)}")
    return value


def optional_field(document: Any, *path: str) -> str | None:
    try:
        return field(document, *path)
    except EventProblem:
        return None


def object_event(scheme: str, bucket: str, key: str, version: str | None, other_key: str | None = None) -> ObjectEvent:
    """Build an event after checking its names: a crafted event must fail here and not in the middle of a batch."""
    _check("bucket", bucket, _MAX_BUCKET_BYTES)
    _check("key", key, _MAX_KEY_BYTES)
    if "/" in bucket:
        raise EventProblem("the bucket's name contains a slash")
    if other_key is not None:
        try:
            _check("key", other_key, _MAX_KEY_BYTES)
        except EventProblem:
            other_key = None
    return ObjectEvent(f"{scheme}://{bucket}", key, version, other_key if other_key != key else None)


def _check(what: str, name: str, max_bytes: int) -> None:
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        raise EventProblem(f"the {what} is not Unicode text") from None
    if not 0 < size_bytes <= max_bytes:
        raise EventProblem(f"the {what} has {size_bytes} bytes, not 1 to {max_bytes}")
    if "\0" in name:
        raise EventProblem(f"the {what} contains a NUL")
