"""Decode protobuf into nested Arrow arrays, with descriptors patched to the fields we keep.

The patch is wire-compatible. AnyValue is recursive, which Arrow cannot express: its `array_value` and `kvlist_value`
become `bytes`, and the few that occur are rendered later. Fields that we do not store are removed, so they are skipped.
"""

from __future__ import annotations

import functools
from typing import Any

import ptars
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from lakerunner.formats.decoded import Tally
from lakerunner.formats.otlp.large_stack import SHALLOW_LEVELS, run_on_large_stack
from lakerunner.model.errors import BadInput
from lakerunner.runtime.memory import is_address_space_limited

_FILES = (common_pb2, resource_pb2, logs_pb2, metrics_pb2, trace_pb2)
#: The Arrow decoder recurses into nested groups without a bound, at some 80 bytes of stack per level. OTLP has no
#: groups, but an attacker may send them. A message has no more levels than bytes: up to this size, a large stack
#: holds them all.
_LARGE_STACK_BYTES = 8_000_000
_RECURSIVE = {"array_value", "kvlist_value"}
_UNUSED = {
    "AnyValue": {"string_value_strindex"},
    "KeyValue": {"key_strindex"},
    "Resource": {"dropped_attributes_count", "entity_refs"},
    "InstrumentationScope": {"dropped_attributes_count"},
    "ResourceLogs": {"schema_url"},
    "ResourceMetrics": {"schema_url"},
    "ResourceSpans": {"schema_url"},
    "ScopeLogs": {"schema_url"},
    "ScopeSpans": {"schema_url"},
    "Metric": {"metadata"},
}
#: Signal -> the message type of its export requests on the wire.
ROOTS: dict[str, type[Message]] = {
    "logs": logs_pb2.LogsData,
    "metrics": metrics_pb2.MetricsData,
    "traces": trace_pb2.TracesData,
}


def decode(payloads: list[bytes], signal: str, tally: Tally) -> pa.StructArray:
    """Decode the `resource_*` messages of all payloads, in order, into one nested array."""
    try:
        return _resources(payloads, signal, text_as_bytes=False)
    except ValueError as reason:
        if "UTF-8" not in str(reason):
            raise _unreadable(payloads, signal, str(reason)) from None
    # Go collectors forward text that is not UTF-8. One U+FFFD is better than losing the object.
    try:
        loose = _resources(payloads, signal, text_as_bytes=True)
    except ValueError as reason:
        raise _unreadable(payloads, signal, str(reason)) from None
    repaired: list[int] = []
    exact = _as_text(loose, _handler(signal, False).schema().field(0).type.value_type, repaired)
    tally.shorten("invalid_utf8", sum(repaired))
    return exact


def canonical(payload: bytes, signal: str) -> bytes:
    """Rewrite a message so that each oneof is set once. By the protobuf rules the last member wins.

    The Arrow decoder returns both members; a caller that finds two decodes the canonical form. Slow, rarely needed.
    """
    message = ROOTS[signal]()
    try:
        message.ParseFromString(payload)
    except DecodeError as reason:
        raise _unreadable([payload], signal, str(reason)) from None
    return message.SerializeToString()


def _resources(payloads: list[bytes], signal: str, *, text_as_bytes: bool) -> pa.StructArray:
    handler = _handler(signal, text_as_bytes)
    # Where address space is limited, there is no large stack, and what could need one is examined first.
    unexamined = SHALLOW_LEVELS if is_address_space_limited() else _LARGE_STACK_BYTES
    _refuse_deep_groups([payload for payload in payloads if len(payload) > unexamined], signal)
    longest = max((len(payload) for payload in payloads if len(payload) <= unexamined), default=0)
    return run_on_large_stack(lambda: handler.list_to_record_batch(payloads), longest).column(0).flatten()


def _refuse_deep_groups(payloads: list[bytes], signal: str) -> None:
    """Refuse payloads that would overflow the Arrow decoder's stack: the reference decoder bounds its recursion."""
    kind = message_factory.GetMessageClass(_pool(True).FindMessageTypeByName(ROOTS[signal].DESCRIPTOR.full_name))
    for payload in payloads:
        try:
            kind.FromString(payload)
        except DecodeError as reason:
            raise ValueError(str(reason)) from None


def _unreadable(payloads: list[bytes], signal: str, reason: str) -> BadInput:
    size = sum(map(len, payloads))
    return BadInput(
        f"cannot read the object as OTLP {signal}: {reason}",
        where=f"within {size} bytes",
        hint=f"it begins with {payloads[0][:24].hex(' ') if payloads else 'nothing'}",
    )


@functools.cache
def _pool(text_as_bytes: bool) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module in _FILES:
        pool.Add(_patched(module.DESCRIPTOR, text_as_bytes))
    return pool


@functools.cache
def _handler(signal: str, text_as_bytes: bool) -> Any:
    pool = _pool(text_as_bytes)
    handlers = ptars.HandlerPool([pool.FindFileByName(module.DESCRIPTOR.name) for module in _FILES])
    return handlers.get_for_message(pool.FindMessageTypeByName(ROOTS[signal].DESCRIPTOR.full_name))


def _patched(original: Any, text_as_bytes: bool) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    original.CopyToProto(file)
    pending = list(file.message_type)
    while pending:
        message = pending.pop()
        pending.extend(message.nested_type)
        kept = [field for field in message.field if field.name not in _UNUSED.get(message.name, ())]
        del message.field[:]
        message.field.extend(kept)
        for field in message.field:
            if message.name == "AnyValue" and field.name in _RECURSIVE:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
                field.ClearField("type_name")
            elif text_as_bytes and field.type == descriptor_pb2.FieldDescriptorProto.TYPE_STRING:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
    return file


def _as_text(array: pa.Array, wanted: pa.DataType, repaired: list[int]) -> pa.Array:
    """Convert binary to text wherever the wanted type is text, at any depth."""
    if pa.types.is_struct(wanted):
        fields = [wanted.field(i) for i in range(wanted.num_fields)]
        children = [_as_text(array.field(i), field.type, repaired) for i, field in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null() if array.null_count else None)
    if pa.types.is_list(wanted):
        return pa.ListArray.from_arrays(array.offsets, _as_text(array.values, wanted.value_type, repaired), type=wanted)
    if not pa.types.is_string(wanted):
        return array
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        # This slow path only sees arrays with an invalid value.
        texts = [None if value is None else value.decode("utf-8", "replace") for value in array.to_pylist()]
        fixed = pa.array(texts, pa.string())
        repaired.append(sum(1 for old, new in zip(array, fixed, strict=True) if _changed(old, new)))
        return fixed


def _changed(old: pa.BinaryScalar, new: pa.StringScalar) -> bool:
    return old.is_valid and bool(old.as_py() != new.as_py().encode())
