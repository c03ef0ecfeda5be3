"""What a worker is asked: which segments, which series, which time, until when. As JSON it is a Flight ticket."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from lakerunner.model.errors import BadInput
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_S
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.store import keys

#: Segments that begin in the same ten minutes belong to the same worker, so that steps can be evaluated there. Not in
#: the same hour: the dashboards of a last hour should find more than one worker busy.
SLOT_NS = 600 * NS_PER_S


class Kind(enum.StrEnum):
    """What is wanted of the series that match."""

    SAMPLES = "samples"
    SERIES = "series"
    EXEMPLARS = "exemplars"
    #: Names of labels, or with `label` the values of one.
    LABELS = "labels"


@dataclass(frozen=True, slots=True)
class SegmentObjects:
    """A segment as a worker finds it: its objects, the rows' first."""

    segment_id: uuid.UUID
    keys: tuple[str, ...]
    #: Of the asker's choice of a worker; not sent.
    slot: int = 0
    size_bytes: int = 0

    @classmethod
    def of(cls, segment: Segment) -> SegmentObjects:
        slot = segment.time_range.start_ns // SLOT_NS
        return cls(segment.segment_id, keys.segment_keys(segment), slot, segment.size_bytes)


@dataclass(frozen=True, slots=True)
class ScanRequest:
    org_id: uuid.UUID
    query_id: uuid.UUID
    kind: Kind
    segments: tuple[SegmentObjects, ...]
    matchers: tuple[Matcher, ...]
    #: Both ends included.
    start_ms: int
    end_ms: int
    #: In seconds of the Unix epoch: a worker gives up then, whoever asks.
    deadline_s: float
    #: Bytes of samples that the answer may have.
    max_bytes: int
    label: str = ""

    def of_segments(self, segments: Sequence[SegmentObjects]) -> ScanRequest:
        """The same question to some of the segments."""
        return replace(self, segments=tuple(segments))

    def to_ticket(self, token: str) -> bytes:
        return orjson.dumps(
            {
                "token": token,
                "org": str(self.org_id),
                "query": str(self.query_id),
                "kind": self.kind.value,
                "segments": [[str(one.segment_id), list(one.keys)] for one in self.segments],
                "matchers": [[matcher.name, matcher.kind.value, matcher.value] for matcher in self.matchers],
                "start_ms": self.start_ms,
                "end_ms": self.end_ms,
                "deadline_s": self.deadline_s,
                "max_bytes": self.max_bytes,
                "label": self.label,
            }
        )


def read_request(document: Mapping[str, Any]) -> ScanRequest:
    """The request of a ticket. Its keys are all of its org, or it is refused."""
    try:
        request = ScanRequest(
            org_id=uuid.UUID(document["org"]),
            query_id=uuid.UUID(document["query"]),
            kind=Kind(document["kind"]),
            segments=tuple(SegmentObjects(uuid.UUID(one), tuple(names)) for one, names in document["segments"]),
            matchers=tuple(Matcher(name, MatchKind(kind), value) for name, kind, value in document["matchers"]),
            start_ms=int(document["start_ms"]),
            end_ms=int(document["end_ms"]),
            deadline_s=float(document["deadline_s"]),
            max_bytes=int(document["max_bytes"]),
            label=str(document["label"]),
        )
    except (ValueError, KeyError, TypeError) as reason:
        raise BadInput(f"cannot read a ticket: {reason!r}") from None
    check_keys(request.org_id, request.segments)
    return request


def check_keys(org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> None:
    """Refuse a key that is not of the org: a second lock on that door."""
    for segment in segments:
        for key in segment.keys:
            if keys.parse_cooked(key).org_id != org_id:
                raise BadInput(f"cannot scan {key!r}: it is not of org {org_id}")
