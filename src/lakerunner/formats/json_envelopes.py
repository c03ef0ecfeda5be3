"""Unwrap JSON documents that hold records of something else: batches of events, and lines of container runtimes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from lakerunner.formats.records.fields import OUTER_TIME, is_key_of

#: CloudWatch's key for the line of a program.
RAW_MESSAGE = "@message"
#: Keys of a list of records in a document that is no record itself: CloudTrail, Azure, CloudWatch, Google Cloud, ...
_BATCHES = ("Records", "records", "logEvents", "entries", "items", "events", "logs", "value")
#: Keys that a record has. A document with one of these is a record, whatever lists it holds.
_OWN = ("message", "msg", "log", "time", "timestamp", "@timestamp", "ts", "level", "severity")


def unwrapped(document: Any) -> Iterator[Any]:
    """Yield the log records of a document; most documents are one record."""
    if type(document) is not dict:
        yield document
        return
    if len(document) <= 12 and not any(key in document for key in _OWN):
        for key in _BATCHES:
            batch = document.get(key)
            if type(batch) is list and batch and all(type(element) is dict and _has_time(element) for element in batch):
                shared = {name: value for name, value in document.items() if type(value) in (str, int, float, bool)}
                for element in batch:
                    yield from unwrapped({**shared, **(_cloudwatch(element) if key == "logEvents" else element)})
                return
        if type(results := document.get("results")) is list and _is_insights(results):
            for fields in results:
                yield {field["field"]: field.get("value") for field in fields}
            return
        if type(streams := document.get("streams")) is list:
            yield from _loki(streams)
            return
    yield _whole(document)


def _has_time(element: dict[str, Any]) -> bool:
    return any(is_key_of("logs", key, {}, "timestamp") for key in element)


def _cloudwatch(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event under the names of CloudWatch Logs Insights; the fields of a message that is JSON beside it."""
    named = {RAW_MESSAGE if key == "message" else key: value for key, value in event.items()}
    message = event.get("message")
    inner = _object(message) if type(message) is str and message.lstrip()[:1] == "{" else None
    return named if inner is None else {**named, **inner}


def _whole(document: dict[str, Any]) -> dict[str, Any]:
    """Return the record with parts put together that its logger took apart."""
    for key in ("_source", "result"):
        # Exports of Elasticsearch and Splunk.
        if type(inner := document.get(key)) is dict and ("_index" in document or "_time" in inner):
            document = {**{name: value for name, value in document.items() if name != key}, **inner}
    line = document.get("log")
    if type(line) is str and "stream" in document and "time" in document:
        # Docker's json-file: the line is the program's, the time Docker's.
        document = {OUTER_TIME if key == "time" else key: value for key, value in document.items()}
    if type(line) is str and line.lstrip()[:1] == "{":
        parsed = _object(line)
        if parsed is not None:
            document = {**{key: value for key, value in document.items() if key != "log"}, **parsed}
    instant = document.get("instant")
    if type(instant) is dict and type(seconds := instant.get("epochSecond")) is int:
        nanos = instant.get("nanoOfSecond", 0)
        rest = {key: value for key, value in document.items() if key != "instant"}
        document = {"timestamp": seconds * 1_000_000_000 + (nanos if type(nanos) is int else 0), **rest}
    if "@t" in document and "@l" not in document and ("@mt" in document or "@m" in document):
        # Serilog's compact format leaves out the level of informational events.
        document = {**document, "@l": "Information"}
    if "auditID" in document and type(document.get("level")) is str:
        # The level of a Kubernetes audit event says how much was recorded, not how severe it is.
        document = {"audit_level" if key == "level" else key: value for key, value in document.items()}
    text = document.get("MESSAGE")
    if type(text) is list and all(type(byte) is int and 0 <= byte < 256 for byte in text):
        # journald writes text that is not plain as an array of bytes.
        document = {**document, "MESSAGE": bytes(text).decode("utf-8", "replace")}
    return document


def _is_insights(results: list[Any]) -> bool:
    """Return whether these are rows of CloudWatch Logs Insights: lists of {field, value}."""
    return bool(results) and all(
        type(fields) is list and all(type(field) is dict and type(field.get("field")) is str for field in fields)
        for fields in results
    )


def _loki(streams: list[Any]) -> Iterator[Any]:
    for stream in streams:
        labels = stream.get("stream") if type(stream) is dict else None
        values = stream.get("values") if type(stream) is dict else None
        if type(labels) is not dict or type(values) is not list:
            yield stream
            continue
        for value in values:
            if type(value) is list and len(value) >= 2:
                yield {**labels, "timestamp": value[0], "message": value[1]}
            else:
                yield value


def _object(text: str) -> dict[str, Any] | None:
    try:
        inner = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return inner if type(inner) is dict else None
