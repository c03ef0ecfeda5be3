"""Parse Azure's events: Event Grid's BlobCreated in either schema, base64-encoded as in a storage queue."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import unquote, urlsplit

from lakerunner.intake.events import (
    IGNORED,
    EventProblem,
    ParsedEvent,
    field,
    json_of,
    object_event,
    optional_field,
    unreadable,
)

_CREATED = "Microsoft.Storage.BlobCreated"
_BEFORE_CONTAINER = "/blobServices/default/containers/"
_BEFORE_BLOB = "/blobs/"


def parse_azure(body: bytes | str) -> ParsedEvent:
    """Parse a queue message, which is one event or a list of events."""
    try:
        document = json_of(_plain(body))
    except EventProblem as problem:
        return unreadable(str(problem), body)
    events = document if isinstance(document, list) else [document]
    return ParsedEvent.of_parts(_event(event) for event in events)


def _plain(body: bytes | str) -> bytes:
    """Return the JSON. Event Grid encodes it in base64; messages put into the queue by hand may be plain."""
    try:
        raw = body.encode() if isinstance(body, str) else body
        if raw.lstrip()[:1] in (b"{", b"["):
            return raw
        return base64.b64decode(raw, validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise EventProblem("neither JSON nor base64") from None


def _event(event: Any) -> ParsedEvent:
    try:
        # Event Grid's own schema uses eventType, CloudEvents uses type.
        kind = optional_field(event, "eventType") or field(event, "type")
        if kind != _CREATED:
            return IGNORED
        container, key = _of_subject(field(event, "subject"))
        other_key = _of_url(optional_field(event, "data", "url"), container)
        return ParsedEvent((object_event("az", container, key, None, other_key),))
    except EventProblem as problem:
        return unreadable(str(problem), str(event))


def _of_subject(subject: str) -> tuple[str, str]:
    container, between, key = subject.removeprefix(_BEFORE_CONTAINER).partition(_BEFORE_BLOB)
    if not subject.startswith(_BEFORE_CONTAINER) or not between:
        raise EventProblem("its subject does not name a blob")
    return container, key


def _of_url(url: str | None, container: str) -> str | None:
    """Return the decoded key from the blob's URL. It differs from the subject's key only if that was encoded."""
    if url is None:
        return None
    try:
        path = unquote(urlsplit(url).path, errors="strict")
    except (ValueError, UnicodeDecodeError):
        return None
    _, between, key = path.partition(f"/{container}/")
    return key if between and key else None
