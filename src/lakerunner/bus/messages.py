"""The messages on the bus: small, typed, encoded as JSON with a version."""

from __future__ import annotations

import base64
import dataclasses
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import orjson
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from lakerunner.model.errors import BadInput

#: The field with the version. A reader refuses an unknown version and ignores unknown fields, so that a newer writer
#: may add fields that older readers do not need.
VERSION_FIELD = "v"

#: The stage that takes raw objects, and those that take segments. A name here makes the topics of that stage.
OBJECT_STAGE = "ingest"
SEGMENT_STAGES = ("compact", "rollup")
#: Stages that take segments only when somebody asks for it: new segments are not announced to them.
REQUESTED_STAGES = ("delete", "backfill")
#: The one of them that takes windows of time, to which new segments add rows.
WINDOW_STAGE = "rollup"


def _known_stage(name: str) -> str:
    if name not in (OBJECT_STAGE, *SEGMENT_STAGES, *REQUESTED_STAGES):
        raise ValueError(f"there is no stage {name!r}")
    return name


Natural = Annotated[int, Field(ge=0)]
StageName = Annotated[str, AfterValidator(_known_stage)]


@dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages: frozen, with plain fields."""

    VERSION: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class ObjectSeen(Message):
    """A raw object arrived and is in the ledger."""

    object_id: uuid.UUID
    org_id: uuid.UUID
    collector: str
    signal: str
    bucket: str
    key: str
    #: The object's own version or etag: the same key written again is another object.
    version: str
    size_bytes: Natural


@dataclass(frozen=True, slots=True)
class WorkReady(Message):
    """A work item is in the index and ready to be processed."""

    item_id: uuid.UUID
    org_id: uuid.UUID
    signal: str
    stage: StageName


@dataclass(frozen=True, slots=True)
class SegmentsMade(Message):
    """Segments of one day and tier went live, and may be merged or rolled up."""

    org_id: uuid.UUID
    collector: str
    signal: str
    dateint: Natural
    tier_s: Natural
    level: Natural
    segment_ids: tuple[uuid.UUID, ...]


@dataclass(frozen=True, slots=True)
class WindowsChanged(Message):
    """Rows of these windows changed, so that their rollups may have to be made."""

    org_id: uuid.UUID
    #: The tier in seconds and the start in nanoseconds of each.
    windows: tuple[tuple[Natural, Natural], ...]


@dataclass(frozen=True, slots=True)
class DeadLetter(Message):
    """A message that could not be handled: its whole payload, its origin, and the reason."""

    topic: str
    partition: Natural
    offset: Natural
    key: str
    group: str
    attempts: Natural
    code: str
    reason: str
    #: Base64, because an unreadable payload need not be text.
    payload_base64: str

    @property
    def payload(self) -> bytes:
        return base64.b64decode(self.payload_base64)


@dataclass(frozen=True, slots=True)
class Redriven(Message):
    """The dead letter at this offset of the same topic was sent back to its original topic."""

    redriven_offset: Natural


M = TypeVar("M", bound=Message)
_ADAPTERS: dict[type[Message], TypeAdapter[Any]] = {}


def encode(message: Message) -> bytes:
    """Encode the message as JSON."""
    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
    return orjson.dumps({VERSION_FIELD: message.VERSION, **fields})


def decode(kind: type[M], payload: bytes) -> M:
    """Decode a message of this kind. Raises BadInput, because a retry would not make it readable."""
    try:
        document = orjson.loads(payload)
    except orjson.JSONDecodeError as reason:
        raise BadInput(f"cannot read a {kind.__name__} message: {reason}") from None
    if not isinstance(document, dict):
        raise BadInput(f"cannot read a {kind.__name__} message: it is not a JSON object")
    version = document.get(VERSION_FIELD)
    if type(version) is not int or version != kind.VERSION:
        raise BadInput(
            f"cannot read a {kind.__name__} message: its version is {version!r}, this release knows {kind.VERSION}",
            hint="upgrade this role, then redrive the message",
        )
    try:
        message: M = _adapter(kind).validate_json(payload, strict=True)
    except ValidationError as reason:
        raise BadInput(f"cannot read a {kind.__name__} message: {_first_problem(reason)}") from None
    return message


def _adapter(kind: type[Message]) -> TypeAdapter[Any]:
    # Building an adapter costs a hundred times as much as using it.
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _first_problem(reason: ValidationError) -> str:
    problem = reason.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in problem["loc"])
    return f"{field}: {problem['msg']}"
