"""One operation of the API, and its description in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lakerunner.serve.openapi import schemas
from lakerunner.serve.openapi.schemas import Schema

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"
ARROW = "application/vnd.apache.arrow.stream"
#: Media types of streamed answers. Their POST requests take a JSON object, not a form.
_STREAMED = (EVENTS, ARROW)
_FORM = "application/x-www-form-urlencoded"
ERRORS = (
    ("400", "The request cannot be read."),
    ("401", "The key is missing, invalid, or lacks the permission."),
    ("404", "Not found."),
    ("422", "The query hit a limit, which the message names, or cannot be evaluated on this data."),
    ("429", "Too many queries of this org are waiting."),
    ("503", "The query timed out or was cancelled, or a dependency is down."),
)


@dataclass(frozen=True, slots=True)
class Operation:
    path: str
    methods: str
    sentence: str
    answer: Schema
    #: Parameter names, separated by spaces. A required one ends in `!`.
    parameters: str = ""
    error: Schema | None = None
    media: str = JSON
    #: Needs no key and is never refused.
    public: bool = False
    #: Schemas of parameters by name.
    known: Mapping[str, Schema] = field(default_factory=lambda: schemas.PARAMETERS)
    #: Statuses of refusals, and the media types of their bodies.
    statuses: tuple[tuple[str, str], ...] = ERRORS
    error_media: tuple[str, ...] = (JSON,)
    #: Status of a successful answer.
    status: str = "200"


def described(operation: Operation, method: str) -> dict[str, object]:
    in_path = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, object]] = [
        {"name": name, "in": "path", "required": True, "schema": schemas.PARAMETERS[name]} for name in in_path
    ]
    described: dict[str, object] = {"summary": operation.sentence}
    if method == "POST":
        described["requestBody"] = _body(operation)
    else:
        parameters += [
            {"name": name, "in": "query", "required": required, "schema": schema}
            for name, required, schema in _parameters(operation)
        ]
    if parameters:
        described["parameters"] = parameters
    if operation.public:
        described["security"] = []
    described["responses"] = _responses(operation)
    return described


def _responses(operation: Operation) -> dict[str, object]:
    answers: dict[str, object] = {
        operation.status: {"description": "The answer.", "content": {operation.media: {"schema": operation.answer}}}
    }
    if operation.error is not None:
        for status, reason in operation.statuses:
            content = {media: {"schema": operation.error} for media in operation.error_media}
            answers[status] = {"description": reason, "content": content}
    elif operation.media == TEXT:
        answers["503"] = {"description": "Not ready.", "content": {TEXT: {"schema": schemas.STRING}}}
    return answers


def _parameters(operation: Operation) -> Iterator[tuple[str, bool, Schema]]:
    """Yield each parameter's name, whether it is required, and its schema."""
    for word in operation.parameters.split():
        name = word.rstrip("!")
        yield name, word.endswith("!"), operation.known[name]


def _body(operation: Operation) -> dict[str, object]:
    media = JSON if operation.media in _STREAMED else _FORM
    schema = {
        "type": "object",
        "properties": {name: schema for name, _, schema in _parameters(operation)},
        "required": [name for name, required, _ in _parameters(operation) if required],
        "additionalProperties": False,
    }
    return {"content": {media: {"schema": schema}}, "required": True}
