"""Parse GCS's events, which are the attributes of a Pub/Sub message; its data is not needed."""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.intake.events import (
    IGNORED,
    EventProblem,
    ParsedEvent,
    field,
    object_event,
    optional_field,
    unreadable,
)

_CREATED = "OBJECT_FINALIZE"


def parse_gcs(attributes: Mapping[str, str]) -> ParsedEvent:
    """Parse a notification. GCS does not encode object names."""
    try:
        if field(attributes, "eventType") != _CREATED:
            return IGNORED
        event = object_event(
            "gs",
            field(attributes, "bucketId"),
            field(attributes, "objectId"),
            optional_field(attributes, "objectGeneration"),
        )
    except EventProblem as problem:
        return unreadable(str(problem), str(dict(attributes)))
    return ParsedEvent((event,))
