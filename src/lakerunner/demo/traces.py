"""Encode the shop's traces: one span per step, failures as events, and links from consumers to senders."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status

from lakerunner.demo import wire
from lakerunner.demo.batch import BATCH_RECORDS, Batch
from lakerunner.demo.calls import Kind
from lakerunner.demo.log_lines import stacktrace
from lakerunner.demo.shop import SERVICES, Shop
from lakerunner.demo.steps import Step
from lakerunner.demo.traffic import Group, Traffic
from lakerunner.demo.wire import (
    Attribute,
    Bytes,
    Ints,
    RecordTemplate,
    attributes,
    field,
    field_sentinel,
    fixed_sentinel,
)
from lakerunner.model.time import NS_PER_S

#: Span flags of OTLP: sampled; whether the parent is remote is known; the parent is remote.
_SAMPLED, _REMOTE_KNOWN, _REMOTE = 0x001, 0x100, 0x200


def encode_traces(shop: Shop, traffic: Traffic) -> Iterator[Batch]:
    """Encode the spans of a slot by pod, ordered by end time, as exporters send them."""
    rows: list[bytes] = []
    owner: list[Ints] = []
    end_ns: list[Ints] = []
    for group in traffic.groups:
        for at, step in enumerate(group.steps):
            rows.extend(_spans(group, at, step))
            owner.append((step.service << 16) + group.pod[:, step.service])
            end_ns.append(group.end_ns(at))
    if not rows:
        return
    time_s = (traffic.slot.end_ns - 1) // NS_PER_S
    for part in wire.grouped(rows, np.concatenate(owner), np.concatenate(end_ns), BATCH_RECORDS):
        pieces: list[bytes] = []
        for owner_id, spans in part:
            service, pod = owner_id >> 16, owner_id & 0xFFFF
            pieces += wire.block(shop.resource(service, pod, time_s), _scope(service), spans)
        yield Batch("traces", b"".join(pieces), sum(len(spans) for _, spans in part), len(part))


def _spans(group: Group, at: int, step: Step) -> list[bytes]:
    columns: dict[str, Bytes] = _Layered(group)
    end_ns = group.end_ns(at)
    columns["span_id"] = group.span_id[:, at]
    columns["start"] = wire.fixed64(group.start_ns[:, at])
    columns["end"] = wire.fixed64(end_ns)
    columns["event_time"] = wire.fixed64(end_ns - group.duration_ns[:, at] // 50)
    if step.parent >= 0:
        columns["parent_id"] = group.span_id[:, step.parent]
    if group.link is not None and step.parent < 0:
        columns["link_trace"], columns["link_span"] = group.link
    return _template(step).fill(group.size, columns)


class _Layered(dict[str, Bytes]):
    """The columns of a step, with those of its group as the fallback."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group

    def __missing__(self, name: str) -> Bytes:
        return self._group.columns[name]


@cache
def _template(step: Step) -> RecordTemplate:
    return RecordTemplate(ScopeSpans(spans=[_prototype(step)]).SerializeToString())


def _prototype(step: Step) -> Span:
    remote = step.kind is Kind.SERVER and step.parent >= 0
    span = Span(
        trace_id=field_sentinel("trace_id"),
        span_id=field_sentinel("span_id"),
        flags=_SAMPLED | _REMOTE_KNOWN | (_REMOTE if remote else 0),
        name=step.name,
        kind=Span.SpanKind.ValueType(step.kind.value),
        start_time_unix_nano=fixed_sentinel("start"),
        end_time_unix_nano=fixed_sentinel("end"),
        attributes=attributes((*step.attributes, *_outcome(step))),
        events=_events(step),
    )
    if step.parent >= 0:
        span.parent_span_id = field_sentinel("parent_id")
    if step.kind is Kind.CONSUMER:
        why: tuple[Attribute, ...] = (("messaging.operation.type", "send"),)
        span.links.add(
            trace_id=field_sentinel("link_trace"),
            span_id=field_sentinel("link_span"),
            flags=_SAMPLED | _REMOTE_KNOWN | _REMOTE,
            attributes=attributes(why),
        )
    if step.is_error and step.failure is not None:
        span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=step.failure.message))
    elif step.kind is Kind.SERVER and step.parent < 0 and step.failure is None:
        span.status.CopyFrom(Status(code=Status.STATUS_CODE_OK))
    return span


def _outcome(step: Step) -> tuple[Attribute, ...]:
    pairs: list[Attribute] = []
    if step.protocol == "http":
        pairs.append(("http.response.status_code", step.status))
    elif step.protocol == "grpc":
        pairs.append(("rpc.grpc.status_code", step.status))
    elif step.protocol == "db":
        pairs.append(("db.response.returned_rows", wire.Varying("size")))
    if step.kind is Kind.SERVER:
        pairs.append(("enduser.id", "user-<user>"))
    if step.failure is not None and step.is_error:
        pairs.append(("error.type", step.failure.type))
    return tuple(pairs)


def _events(step: Step) -> list[Span.Event]:
    if step.failure is not None and step.failed_here:
        pairs: tuple[Attribute, ...] = (
            ("exception.type", step.failure.type),
            ("exception.message", step.failure.message),
            ("exception.stacktrace", stacktrace(step)),
            ("exception.escaped", True),
        )
        name = "exception"
    elif step.kind is Kind.PRODUCER:
        name, pairs = "message.sent", (("messaging.message.body.size", wire.Varying("size")),)
    else:
        return []
    return [Span.Event(time_unix_nano=fixed_sentinel("event_time"), name=name, attributes=attributes(pairs))]


@cache
def _scope(service: int) -> bytes:
    name = f"io.opentelemetry.{SERVICES[service].language}.{SERVICES[service].name}"
    return field(1, InstrumentationScope(name=name, version="2.1.0").SerializeToString())
