"""Requests to workers: scan segments, or evaluate a part of a query over them. A request is a Flight ticket in JSON.

Clocks of two machines differ, so a ticket carries the time that is left and no deadline.
"""

from __future__ import annotations

import enum
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import orjson
import pyarrow as pa
import pyarrow.ipc

from lakerunner.model.errors import BadInput
from lakerunner.model.hidden import HiddenRows
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.time import NS_PER_MS, NS_PER_S
from lakerunner.query.fanout.errors import Draining
from lakerunner.query.plan.kept_segments import KeptSegments
from lakerunner.query.plan.leaf import Leaf, Piece
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.reading import Need, Reading
from lakerunner.store import keys

#: The version of tickets, payloads and answers. It grows when a worker of the release before could not read them, or
#: would answer something else. Then API and workers of two releases do not speak to each other: each waits for its own.
PROTOCOL = 1
#: Segments that begin in the same ten minutes belong to the same worker, so that it can evaluate whole steps. A slot of
#: an hour would be too long: a dashboard of the last hour should keep more than one worker busy.
SLOT_NS = 600 * NS_PER_S
_EVALUATE = "evaluate"
#: Actions: end all requests of a query; ask whether the worker accepts new work; send the filters of segments.
CANCEL, PING, FILTERS = "cancel", "ping", "filters"
#: Recently read segments as requests name them, at about a kilobyte each.
_OBJECTS: dict[tuple[uuid.UUID, uuid.UUID], SegmentObjects] = {}
_MAX_OBJECTS = 50_000
#: Segments of tickets that a worker keeps as it has read them, at about half a kilobyte each.
_MAX_READ = 20_000


class Kind(enum.StrEnum):
    """What a scan returns of the matching series."""

    SAMPLES = "samples"
    SERIES = "series"
    EXEMPLARS = "exemplars"
    #: Label names; or, if `label` is set, the values of that label.
    LABELS = "labels"


@dataclass(frozen=True, slots=True)
class SegmentObjects:
    """A segment as a worker reads it: the keys of its objects, the one with the rows first."""

    segment_id: uuid.UUID
    keys: tuple[str, ...]
    size_bytes: int = 0
    #: The time range of its rows, half-open.
    start_ns: int = 0
    end_ns: int = 0
    tier_s: int = RAW_TIER_S
    #: Rows of it that must not be seen.
    hidden: tuple[HiddenRows, ...] = ()
    #: What tickets have of it, if that is at hand: the segments of a query are named again by the next one.
    #: No parameter, so that a segment that is made from another one does not have the text of that one.
    encoded: bytes = field(default=b"", init=False, compare=False, repr=False)

    @classmethod
    def of(cls, segment: Segment) -> SegmentObjects:
        """The segment as it is, apart from hidden rows, never changes, and making it takes as long as a small scan."""
        name = segment.org_id, segment.segment_id
        found = _OBJECTS.get(name)
        if found is None:
            times, names = segment.time_range, keys.segment_keys(segment)
            found = cls(segment.segment_id, names, segment.size_bytes, times.start_ns, times.end_ns, segment.tier_s)
            object.__setattr__(found, "encoded", orjson.dumps(_segment_json(found)))
            if len(_OBJECTS) >= _MAX_OBJECTS:
                _OBJECTS.clear()
            _OBJECTS[name] = found
        return replace(found, hidden=segment.hidden) if segment.hidden else found

    @classmethod
    def of_all(cls, segments: Sequence[Segment]) -> Sequence[SegmentObjects]:
        """All of these segments. Those of a list that is kept are kept with it."""
        if isinstance(segments, KeptSegments):
            return segments.once("objects", lambda: tuple(map(cls.of, segments)))
        return tuple(map(cls.of, segments))

    @property
    def slot(self) -> int:
        """The time slot that determines the segment's worker."""
        return self.start_ns // SLOT_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The common part of all requests: the org, the segments it may read, and its limits."""

    org_id: uuid.UUID
    query_id: uuid.UUID
    segments: tuple[SegmentObjects, ...]
    #: By this process's monotonic clock.
    deadline_s: float
    #: Bytes that the request may hold at once.
    max_bytes: int

    @property
    def time_left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def _common(self, token: str) -> dict[str, Any]:
        return {
            "v": PROTOCOL,
            "token": token,
            "org": str(self.org_id),
            "query": str(self.query_id),
            "segments": [
                orjson.Fragment(each.encoded) if each.encoded else _segment_json(each) for each in self.segments
            ],
            "time_left_s": self.time_left_s,
            "max_bytes": self.max_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest(_Request):
    """Asks for series or samples of metric segments, segment by segment."""

    kind: Kind
    leaf: Leaf
    #: Which tier to read when; empty: raw samples for the whole leaf.
    pieces: tuple[Piece, ...] = ()
    label: str = ""
    #: Scan segments that are in memory or on disk one by one, without threads. Never travels: a worker decides it.
    small: bool = False

    def spans_ms(self, segment: SegmentObjects) -> list[tuple[int, int]]:
        """The times to read from a segment, both ends included."""
        if not self.pieces:
            return [(self.leaf.start_ms, self.leaf.end_ms)]
        first_ms, last_ms = segment.start_ns // NS_PER_MS, segment.end_ns // NS_PER_MS
        return [
            (max(piece.start_ms, self.leaf.start_ms), piece.end_ms)
            for piece in self.pieces
            if piece.tier_s == segment.tier_s and piece.start_ms <= last_ms and first_ms <= piece.end_ms
        ]

    def of_segments(self, segments: Sequence[SegmentObjects]) -> ScanRequest:
        """The same request for some of the segments."""
        return replace(self, segments=tuple(segments))

    def to_ticket(self, token: str) -> bytes:
        return _dumps(
            {
                **self._common(token),
                "kind": self.kind.value,
                "leaf": _leaf_json(self.leaf),
                "pieces": _pieces_json(self.pieces),
                "label": self.label,
            }
        )


@dataclass(frozen=True, slots=True)
class Read:
    """One leaf of a fragment, and the indexes of those of the request's segments that it needs."""

    leaf: Leaf
    segments: tuple[int, ...]
    #: Which tier to read when; empty: raw samples for the whole leaf.
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a compiled query. Only its language can decode the payload."""

    language: str
    payload: bytes
    #: What it reads of samples. Rows are read of all segments that the request names.
    reads: tuple[Read, ...]
    #: Whether the value is rows. Their columns are known only once they are read.
    rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest(_Request):
    """Asks for the value of a fragment over its segments."""

    fragment: Fragment
    #: The last run of the query read little: the worker spends no threads on this one.
    small: bool = False
    #: The address of the worker to ask first; None: the one that owns most of the segments. It is not sent.
    place: str | None = None

    def to_ticket(self, token: str) -> bytes:
        fragment = self.fragment
        return _dumps(
            {
                **self._common(token),
                "kind": _EVALUATE,
                "language": fragment.language,
                "payload": fragment.payload.decode("ascii"),
                "reads": [[_leaf_json(read.leaf), read.segments, _pieces_json(read.pieces)] for read in fragment.reads],
                "rows": fragment.rows,
                "small": self.small,
            }
        )


Request: TypeAlias = ScanRequest | EvaluateRequest
R = TypeVar("R", ScanRequest, EvaluateRequest)


def read_request(document: Mapping[str, Any], most_bytes: int = 1 << 62) -> Request:
    """The request in a ticket, which may hold `most_bytes`. It is refused if it names an object of another org."""
    if document.get("v", PROTOCOL) != PROTOCOL:
        # While releases are exchanged, others take it: this worker is leaving, or its API is.
        raise Draining(
            f"cannot answer a request of another release: its protocol is {document['v']!r}, this worker's {PROTOCOL}",
            hint="upgrade the API and all workers to the same release",
        )
    try:
        org_id = _org_id(document["org"])
        common: dict[str, Any] = {
            "org_id": org_id,
            "query_id": uuid.UUID(document["query"]),
            "segments": _segments(org_id, document),
            "deadline_s": time.monotonic() + float(document["time_left_s"]),
            "max_bytes": min(int(document["max_bytes"]), most_bytes),
        }
        request: Request
        if document["kind"] == _EVALUATE:
            reads = tuple(
                Read(_leaf(leaf), tuple(map(int, segments)), _pieces(pieces))
                for leaf, segments, pieces in document["reads"]
            )
            payload = str(document["payload"]).encode("ascii")
            fragment = Fragment(str(document["language"]), payload, reads, bool(document["rows"]))
            request = EvaluateRequest(fragment=fragment, small=bool(document["small"]), **common)
        else:
            kind, leaf = Kind(document["kind"]), _leaf(document["leaf"])
            pieces = _pieces(document["pieces"])
            request = ScanRequest(kind=kind, leaf=leaf, pieces=pieces, label=str(document["label"]), **common)
    except (ValueError, KeyError, TypeError) as reason:
        raise BadInput(f"cannot read a ticket: {reason!r}") from None
    return request


def filters_body(org_id: uuid.UUID, segments: Sequence[SegmentObjects], token: str) -> bytes:
    """What is sent with the action `FILTERS`."""
    return _dumps({"token": token, "org": str(org_id), "segments": list(map(_segment_json, segments))})


def read_filters_body(document: Mapping[str, Any]) -> tuple[SegmentObjects, ...]:
    try:
        return _segments(uuid.UUID(document["org"]), document)
    except (ValueError, KeyError, TypeError) as reason:
        raise BadInput(f"cannot read which filters are wanted: {reason!r}") from None


def _segment_json(segment: SegmentObjects) -> list[Any]:
    return [
        str(segment.segment_id),
        segment.keys,
        segment.size_bytes,
        segment.start_ns,
        segment.end_ns,
        segment.tier_s,
        [hidden.to_json() for hidden in segment.hidden],
    ]


def _segments(org_id: uuid.UUID, document: Mapping[str, Any]) -> tuple[SegmentObjects, ...]:
    found = []
    for segment_id, names, size_bytes, start_ns, end_ns, tier_s, hidden in document["segments"]:
        segment = _segment(org_id, segment_id, tuple(names), size_bytes, start_ns, end_ns, tier_s)
        found.append(replace(segment, hidden=tuple(map(HiddenRows.from_json, hidden))) if hidden else segment)
    return tuple(found)


@lru_cache(maxsize=1_024)
def _org_id(text: str) -> uuid.UUID:
    return uuid.UUID(text)


@lru_cache(maxsize=_MAX_READ)
def _segment(
    org_id: uuid.UUID,
    segment_id: str,
    names: tuple[str, ...],
    size_bytes: int,
    start_ns: int,
    end_ns: int,
    tier_s: int,
) -> SegmentObjects:
    """A segment of a ticket. Queries name the same ones again and again, and reading one takes a dozen calls.

    The API chooses segments of one org only. The worker checks again, in case that ever fails.
    """
    prefix = keys.org_prefix(org_id)
    for key in names:
        if not keys.check_key(key).startswith(prefix):
            raise BadInput(f"cannot scan {key!r}: it is not of org {org_id}")
    return SegmentObjects(uuid.UUID(segment_id), names, int(size_bytes), int(start_ns), int(end_ns), int(tier_s))


#: Each batch of rows travels packed, with its own schema: the columns are known only once they are read.
PACKED_SCHEMA = pa.schema([pa.field("batch", pa.large_binary())])


def packed_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.RecordBatch.from_pydict({"batch": [sink.getvalue().to_pybytes()]}, schema=PACKED_SCHEMA)


def unpacked_batch(packed: pa.RecordBatch) -> pa.RecordBatch:
    return pa.ipc.open_stream(packed.column(0)[0].as_buffer()).read_next_batch()


def read_document(body: bytes) -> Mapping[str, Any]:
    """The JSON object of a ticket or an action."""
    try:
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            document = json.loads(body)
    except ValueError as reason:
        raise BadInput(f"cannot read a request: {reason}") from None
    if not isinstance(document, dict):
        raise BadInput("cannot read a request: it is not a JSON object")
    return document


def _dumps(document: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError:
        # A matcher may contain bytes that are not UTF-8. Only the standard library can escape them in JSON.
        return json.dumps(document, default=_unpacked).encode()


def _unpacked(fragment: object) -> Any:
    """What is encoded already, for an encoder that cannot take it as it is."""
    return orjson.loads(orjson.dumps(fragment))


def _leaf_json(leaf: Leaf) -> list[Any]:
    matchers = [[matcher.name, matcher.kind.value, matcher.value] for matcher in leaf.matchers]
    # Times are text: a query may name times that exceed the integers of JSON.
    reading = [leaf.reading.need.value, leaf.reading.tier_s]
    return [leaf.signal, str(leaf.start_ns), str(leaf.end_ns), matchers, reading]


def _leaf(document: Sequence[Any]) -> Leaf:
    signal, start_ns, end_ns, matchers, (need, tier_s) = document
    parsed = tuple(Matcher(name, MatchKind(kind), value) for name, kind, value in matchers)
    return Leaf(str(signal), int(start_ns), int(end_ns), parsed, Reading(Need(need), int(tier_s)))


def _pieces_json(pieces: Sequence[Piece]) -> list[list[Any]]:
    return [[piece.tier_s, str(piece.start_ms), str(piece.end_ms)] for piece in pieces]


def _pieces(document: Sequence[Any]) -> tuple[Piece, ...]:
    return tuple(Piece(int(tier_s), int(start_ms), int(end_ms)) for tier_s, start_ms, end_ms in document)
