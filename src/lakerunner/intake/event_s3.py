"""Parse S3's events, plain or inside SNS or EventBridge, from AWS and compatible stores (MinIO, versitygw)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from lakerunner.intake.events import (
    IGNORED,
    EventProblem,
    ObjectEvent,
    ParsedEvent,
    field,
    json_of,
    object_event,
    optional_field,
    unreadable,
)

_CREATED = "ObjectCreated:"
_EVENTBRIDGE_CREATED = "Object Created"
#: Characters that occur in encoded keys. A key with any other character was not encoded.
_ENCODED = re.compile(r"(?:[A-Za-z0-9/_.*~+-]|%[0-9A-Fa-f]{2})*", re.ASCII)


def parse_s3(body: bytes | str, *, always_encoded: bool = True) -> ParsedEvent:
    """Parse a message.

    Keys in S3's own events are URL-encoded (`%3D`, `+` for a space). Some webhook senders do not encode keys; for them
    `always_encoded=False` keeps both readings of an ambiguous key.
    """
    try:
        return _document(json_of(body), body, always_encoded, nested=False)
    except EventProblem as problem:
        return unreadable(str(problem), body)


def _document(document: Any, body: bytes | str, always_encoded: bool, *, nested: bool) -> ParsedEvent:
    if not isinstance(document, Mapping):
        raise EventProblem("not a JSON object")
    if isinstance(records := document.get("Records"), list):
        return ParsedEvent.of_parts(_record(record, always_encoded) for record in records)
    if document.get("Event") == "s3:TestEvent":
        return IGNORED
    if "detail-type" in document and "detail" in document:
        return _eventbridge(document)
    if not nested and "Message" in document and "TopicArn" in document:
        if document.get("Type", "Notification") != "Notification":
            raise EventProblem(
                f"SNS sent a {document['Type']}: confirm the subscription by opening the SubscribeURL in the body"
            )
        return _document(json_of(field(document, "Message")), body, always_encoded, nested=True)
    raise EventProblem("neither an S3 event nor one inside SNS or EventBridge")


def _record(record: Any, always_encoded: bool) -> ParsedEvent:
    try:
        # MinIO and versitygw write s3:ObjectCreated:Put, AWS ObjectCreated:Put.
        if not field(record, "eventName").removeprefix("s3:").startswith(_CREATED):
            return IGNORED
        return ParsedEvent((_created(record.get("s3"), always_encoded),))
    except EventProblem as problem:
        return unreadable(str(problem), str(record))


def _created(s3: Any, always_encoded: bool) -> ObjectEvent:
    bucket, written = field(s3, "bucket", "name"), field(s3, "object", "key")
    version = optional_field(s3, "object", "versionId")
    if always_encoded:
        return object_event("s3", bucket, unquote_key(written), version)
    if not _ENCODED.fullmatch(written):
        return object_event("s3", bucket, written, version)
    try:
        return object_event("s3", bucket, unquote_key(written), version, other_key=written)
    except EventProblem:
        return object_event("s3", bucket, written, version)


def _eventbridge(document: Mapping[str, Any]) -> ParsedEvent:
    if document["detail-type"] != _EVENTBRIDGE_CREATED:
        return IGNORED
    detail = document["detail"]
    written = field(detail, "object", "key")
    try:
        unquoted = unquote_key(written)
    except EventProblem:
        unquoted = None
    # S3 does not encode keys for EventBridge, but a service on the way may.
    version = optional_field(detail, "object", "version-id")
    return ParsedEvent((object_event("s3", field(detail, "bucket", "name"), written, version, other_key=unquoted),))


def unquote_key(written: str) -> str:
    """Decode a URL-encoded key.

    >>> unquote_key("otel-raw%2Fyear%3D2026/a+b.json")
    'otel-raw/year=2026/a b.json'
    """
    try:
        return unquote_plus(written, errors="strict")
    except UnicodeDecodeError:
        raise EventProblem("the key is not UTF-8 when decoded") from None
