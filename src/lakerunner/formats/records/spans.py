"""Fields of spans that writers spell differently: kind, status, duration, events and links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import as_text, cut_text
from lakerunner.formats.limits import Limits
from lakerunner.formats.otlp.nesting import timestamps
from lakerunner.formats.records.ids import hex_ids
from lakerunner.formats.records.records import Records
from lakerunner.formats.times import to_nanos
from lakerunner.model.signals.traces import EVENT, LINK

#: In the order of OTLP's numbers.
_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUSES = ("unset", "ok", "error")
#: Nanoseconds in the unit that a key names. A key without a unit says nothing: writers differ.
_DURATIONS: Mapping[int, tuple[str, ...]] = {
    1: ("duration_ns", "durationNs", "durationNano", "duration_nano", "durationNanos", "duration_nanos"),
    1_000: ("duration_us", "durationUs", "durationMicros", "duration_micros", "duration_microseconds"),
    1_000_000: ("duration_ms", "durationMs", "durationMillis", "duration_millis", "duration_milliseconds"),
    1_000_000_000: ("duration_s", "durationS", "durationSeconds", "duration_seconds", "duration_sec"),
}
_EVENT_KEYS = ("events", "span_events", "logs")
_LINK_KEYS = ("links", "span_links")
_TIME_KEYS = ("timestamp", "time_unix_nano", "timeUnixNano", "time", "ts")


def kinds(records: Records, keys: Sequence[str]) -> pa.Array:
    """Return the kinds by OTLP's names: `SPAN_KIND_SERVER`, `Server`, `server` and 2 are all `server`."""
    return _words(records.text(keys), "span_kind_", _KINDS)


def statuses(records: Records, keys: Sequence[str]) -> pa.Array:
    """Return the status codes by OTLP's names, `unset` where there is none.

    `status` may also be the status of a response, so only names count as its values.
    """
    found = pc.coalesce(records.text(keys), records.text(["status"], _are_statuses))
    return pc.fill_null(_words(found, "status_code_", _STATUSES), "unset")


def durations(records: Records, keys: Sequence[str]) -> pa.Array:
    """Return the durations in nanoseconds as floats, whatever unit the key names; null where there is none."""
    found = records.numbers(tuple(dict.fromkeys((*keys, *_DURATIONS[1]))), pa.float64())
    for unit, named in _DURATIONS.items():
        if unit > 1:
            found = pc.coalesce(found, pc.round(pc.multiply(records.numbers(named, pa.float64()), float(unit))))
    return found


def events(records: Records, limits: Limits) -> pa.Array:
    """Return the events of each span, from JSON arrays of objects."""

    def build(items: list[dict[str, Any]]) -> list[pa.Array]:
        time_ns, read = to_nanos(pa.array([_time(item) for item in items], pa.string()))
        time_ns = time_ns + np.array([_count(item, "timestamp_nanos") for item in items], np.int64)
        return [
            timestamps(time_ns, "ns", ~read),
            _texts(items, "name", "event", limits=limits, records=records),
            _attributes(items, limits, records),
            _counts(items, "dropped_attributes_count", "droppedAttributesCount"),
        ]

    return _lists(records, _EVENT_KEYS, EVENT, build)


def links(records: Records, limits: Limits) -> pa.Array:
    """Return the links of each span, from JSON arrays of objects."""

    def build(items: list[dict[str, Any]]) -> list[pa.Array]:
        return [
            hex_ids(_texts(items, "trace_id", "traceId", "traceID", limits=limits, records=records), 32),
            hex_ids(_texts(items, "span_id", "spanId", "spanID", limits=limits, records=records), 16),
            _texts(items, "trace_state", "traceState", limits=limits, records=records),
            _counts(items, "flags"),
            _attributes(items, limits, records),
            _counts(items, "dropped_attributes_count", "droppedAttributesCount"),
        ]

    return _lists(records, _LINK_KEYS, LINK, build)


def _words(texts: pa.Array, prefix: str, names: Sequence[str]) -> pa.Array:
    encoded = pc.utf8_lower(pc.utf8_trim_whitespace(texts)).dictionary_encode()
    words = [text.removeprefix(prefix) for text in encoded.dictionary.to_pylist()]
    named = [names[int(word)] if word.isdecimal() and int(word) < len(names) else word for word in words]
    return pa.array(named, pa.string()).take(encoded.indices)


def _are_statuses(values: pa.Array) -> npt.NDArray[np.bool_]:
    known = pa.array([*_STATUSES, *(f"status_code_{name}" for name in _STATUSES)])
    found: npt.NDArray[np.bool_] = pc.is_in(pc.utf8_lower(as_text(values)), value_set=known).to_numpy(
        zero_copy_only=False
    )
    return found


def _lists(
    records: Records, keys: Sequence[str], kind: pa.StructType, build: Callable[[list[dict[str, Any]]], list[pa.Array]]
) -> pa.Array:
    """Pick the arrays of objects under the keys. Anything else under them stays an attribute."""
    per_row: list[list[dict[str, Any]]] = [[] for _ in range(records.row_count)]
    for rows, values in records.pick(keys, _are_object_lists):
        for row, text in zip(rows.tolist(), values.to_pylist(), strict=True):
            per_row[row] = orjson.loads(text)
    items = [item for each in per_row for item in each]
    if not items:
        return pa.nulls(records.row_count, pa.list_(kind))
    sizes = np.array([len(each) for each in per_row])
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())
    struct = pa.StructArray.from_arrays(build(items), fields=list(kind))
    return pa.ListArray.from_arrays(offsets, struct, type=pa.list_(kind), mask=pa.array(sizes == 0))


def _are_object_lists(values: pa.Array) -> npt.NDArray[np.bool_]:
    if not pa.types.is_string(values.type):
        return np.zeros(len(values), np.bool_)
    return np.array([_is_object_list(text) for text in values.to_pylist()], np.bool_)


def _is_object_list(text: str) -> bool:
    if not text.startswith("["):
        return False
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(found, list) and all(isinstance(item, dict) for item in found)


def _first(item: dict[str, Any], *keys: str) -> Any:
    return next((item[key] for key in keys if item.get(key) is not None), None)


def _time(item: dict[str, Any]) -> str | None:
    value = _first(item, *_TIME_KEYS)
    return None if value is None else str(value)


def _count(item: dict[str, Any], *keys: str) -> int:
    value = _first(item, *keys)
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


def _counts(items: list[dict[str, Any]], *keys: str) -> pa.Array:
    return pa.array([_count(item, *keys) for item in items], pa.uint32())


def _texts(items: list[dict[str, Any]], *keys: str, limits: Limits, records: Records) -> pa.Array:
    found = [_first(item, *keys) for item in items]
    texts = [value if value is None or isinstance(value, str) else orjson.dumps(value).decode() for value in found]
    return cut_text(pa.array(texts, pa.string()), limits, records.tally)


def _attributes(items: list[dict[str, Any]], limits: Limits, records: Records) -> pa.Array:
    """The attributes as JSON objects: sent as such, as text, or as pairs of keys and values."""
    texts = []
    for item in items:
        found = _first(item, "attributes", "fields", "tags")
        if isinstance(found, str):
            try:
                found = orjson.loads(found)
            except orjson.JSONDecodeError:
                found = {"attributes": found}
        texts.append(orjson.dumps(pairs_of(found)).decode() if found else None)
    return cut_text(pa.array(texts, pa.string()), limits, records.tally)


def pairs_of(found: Any) -> Any:
    """Turn a list of pairs (`[key, value]` or `{"key": …, "value": …}`) into an object.

    >>> pairs_of([{"key": "a", "value": {"intValue": "1"}}, ["b", 2]])
    {'a': '1', 'b': 2}
    """
    if not isinstance(found, list):
        return found
    pairs = [[pair.get("key"), pair.get("value")] if isinstance(pair, dict) else pair for pair in found]
    if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        return {"attributes": found}
    return {key: _any_value(value) for key, value in pairs}


def _any_value(value: Any) -> Any:
    """The value of an OTLP AnyValue, in which one member is set; any other value as it is."""
    if isinstance(value, dict) and value and all(key.lower().replace("_", "").endswith("value") for key in value):
        return next((member for member in value.values() if member is not None), None)
    return value
