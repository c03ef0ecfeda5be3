"""Stored log rows as entries: the labels that Loki's OTLP endpoint gives to a record.

Resource attributes of a fixed list are labels of the stream, everything else is structured metadata. Loki collects the
metadata of a record in one list: its attributes, its other fields, the attributes of its resource, those of its scope,
the name and version of the scope, the detected level. Of equal names, the last one counts. Metadata that is named like
a label of the stream gets the suffix `_extracted`. An empty value is no label.

Two things depend on what ingest stored: `keys` has the original spelling of the keys of every column, and rows that
Loki would have dropped as exact repeats of another row are left out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW, as_text
from lakerunner.formats.number_text import float_text
from lakerunner.formats.spelling import spelled_rows
from lakerunner.formats.unify_tables import exploded
from lakerunner.model.labels import loki_label
from lakerunner.model.signals.logs import DERIVED, FINGERPRINT, LEVEL, REPEAT, SPELLED
from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.logql.entries import Category, Entries, Ints, Mask, plain, same_times, valid

#: Column -> the keys stored in it, as `keys_of` reads them from a schema. The first is the usual spelling.
Keys = Mapping[str, Sequence[str]]

#: Resource attributes that are labels of the stream.
STREAM_KEYS = (
    "cloud.availability_zone",
    "cloud.region",
    "container.name",
    "deployment.environment",
    "deployment.environment.name",
    "k8s.cluster.name",
    "k8s.container.name",
    "k8s.cronjob.name",
    "k8s.daemonset.name",
    "k8s.deployment.name",
    "k8s.job.name",
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.replicaset.name",
    "k8s.statefulset.name",
    "service.instance.id",
    "service.name",
    "service.namespace",
)
STREAM_LABELS = frozenset(map(loki_label, STREAM_KEYS))
SERVICE_NAME, UNKNOWN_SERVICE = "service_name", "unknown_service"
DETECTED_LEVEL, UNKNOWN_LEVEL = "detected_level", "unknown"
EXTRACTED = "_extracted"
#: Labels made from fields of a record -> the columns that they need.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "observed_timestamp": ("observed_timestamp",),
    "severity_number": ("severity_number", DERIVED),
    "severity_text": ("severity", DERIVED),
    "dropped_attributes_count": ("dropped_attributes_count",),
    "flags": ("flags",),
    "trace_id": ("trace_id",),
    "span_id": ("span_id",),
}
#: Labels that every entry has, and their columns. No attribute changes them.
ALWAYS: Mapping[str, str] = {SERVICE_NAME: "service_name", DETECTED_LEVEL: LEVEL}
#: What these labels are where the column has no value.
DEFAULTS: Mapping[str, str] = {SERVICE_NAME: UNKNOWN_SERVICE, DETECTED_LEVEL: UNKNOWN_LEVEL}
#: Columns of the signal that hold labels as they are written. Other columns may hold numbers.
TEXT_COLUMNS = frozenset({*ALWAYS.values(), "severity", "trace_id", "span_id"})
TIME, LINE = "timestamp", "message"
#: Of fewer rows, labels are made without looking for repeats.
_FEW_ROWS = 512
LEVELS = ("attr", "resource", "scope")
SCOPE_FIELDS = ("scope_name", "scope_version")


def columns_for(names: frozenset[str] | None, *, need_lines: bool = True) -> tuple[str, ...] | None:
    """Return the stored columns that `entries_of` needs for these labels. None means all columns, for all labels.

    >>> columns_for(frozenset({"detected_level"}), need_lines=False)
    ('timestamp', 'repeat', 'level')
    """
    if names is None:
        return None
    found = dict.fromkeys((TIME, REPEAT, *([LINE] if need_lines else [])))
    for name in sorted(names):
        found |= dict.fromkeys(_columns_of(name))
    if any(name.startswith(LEVELS) for name in found):
        found[SPELLED] = None
    return tuple(found)


def value_columns(name: str) -> tuple[str, ...]:
    """Return the stored columns of which one has the value of the label, wherever an entry has it.

    A key that lost its column to another key of the same row is in the overflow, under its original spelling.
    """
    return (*(column for column in dict.fromkeys(_columns_of(name)) if column != DERIVED), OVERFLOW)


def _columns_of(name: str) -> Iterator[str]:
    if name in ALWAYS:
        yield ALWAYS[name]
        return
    if name == FINGERPRINT:
        yield FINGERPRINT
    yield from FIELDS.get(name, ())
    if name in SCOPE_FIELDS:
        yield name
    # An attribute is stored under its key in lower case, or in the overflow as it was spelled.
    spellings = {name.lower(): None, name: None}
    if name.startswith("key_") and name[4:5].isdigit():
        spellings |= {name[4:].lower(): None, name[4:]: None}
    for level in LEVELS:
        yield from (f"{level}_{spelling}" for spelling in spellings)
    if name.endswith(EXTRACTED) and (base := name.removesuffix(EXTRACTED)) in STREAM_LABELS:
        if base in ALWAYS:
            yield from (ALWAYS[base], *(f"{level}_{base}" for level in LEVELS))
        else:
            yield from _columns_of(base)


def entries_of(
    batch: pa.RecordBatch,
    keys: Keys,
    names: frozenset[str] | None = None,
    time_ns: int | None = None,
    number: str | None = None,
) -> Entries:
    """Return the entries of stored rows, with the labels of these names; None means all labels.

    The batch has the columns of `columns_for`. Without the column of lines, the lines are empty. With `time_ns`, that
    is the time of all entries, whatever the batch says. The label `number` may have numbers instead of texts.
    """
    if REPEAT in batch.schema.names and (repeats := batch.column(REPEAT)).null_count < len(repeats):
        batch = batch.filter(repeats.is_null())
    labels = _Labels(batch, names, number)
    labels.add_attributes(keys)
    labels.add_fields()
    if time_ns is not None:
        return Entries(same_times(time_ns, batch.num_rows), lines_of(batch), labels.columns())
    return Entries(_times_of(batch), lines_of(batch), labels.columns())


def _times_of(batch: pa.RecordBatch) -> Ints:
    times = batch.column(TIME)
    # A view costs a tenth of a cast, which for few rows takes as long as reading them.
    numbers = times.view(pa.int64()) if times.type == _NS else times.cast(pa.int64())
    found: Ints = numbers.to_numpy(zero_copy_only=False)
    return found


def lines_of(batch: pa.RecordBatch) -> pa.StringArray:
    if LINE not in batch.schema.names:
        offsets = pa.py_buffer(np.zeros(batch.num_rows + 1, np.int32))
        return pa.StringArray.from_buffers(batch.num_rows, offsets, pa.py_buffer(b""))
    lines = plain(batch.column(LINE))
    return lines.fill_null("") if lines.null_count else lines


_NS = pa.timestamp("ns", "UTC")
#: Where a label comes from, in the order of Loki's list.
_SOURCES = {"attr": 0, "field": 1, "resource": 2, "scope": 3, "scope_field": 4, "level": 5}


@dataclass(slots=True)
class _Labels:
    """Collects the labels of a batch."""

    batch: pa.RecordBatch
    names: frozenset[str] | None
    #: A label that is only read as a number: writing numbers as texts, to read them again, would take most of the time.
    number: str | None = None
    stream: dict[str, pa.Array] = field(default_factory=dict)
    #: Source, whether the value has its own column, label, values.
    metadata: list[tuple[int, bool, str, pa.Array]] = field(default_factory=list)

    def columns(self) -> dict[tuple[Category, str], pa.Array]:
        """Return the labels by category and name, after the rules for equal names."""
        found: dict[tuple[Category, str], pa.Array] = {
            (Category.STREAM, name): values for name, values in self.stream.items() if self._wants(name)
        }
        named = [name for _, _, name, _ in self.metadata]
        for _, _, name, values in sorted(self.metadata, key=lambda each: each[:2]):
            if name == self.number and (name in self.stream or named.count(name) > 1):
                # Beside other values of the same name, they are texts like these.
                values = values if _is_text(values) else _texts(values)
            for renamed, part in self._beside_stream(name, values):
                if self._wants(renamed):
                    had = found.get((Category.METADATA, renamed))
                    found[Category.METADATA, renamed] = part if had is None else pc.coalesce(plain(part), plain(had))
        return found

    def _beside_stream(self, name: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
        """Yield the values under their name, and those of entries whose stream has that name under another one."""
        shadow = self.stream.get(name)
        if shadow is None:
            yield name, values
            return
        shadowed = valid(shadow)
        for renamed, mask in ((name, ~shadowed), (name + EXTRACTED, shadowed)):
            part = _where(values, mask)
            if part is not None:
                yield renamed, part

    def _wants(self, name: str) -> bool:
        return self.names is None or name in self.names

    def _may_want(self, name: str) -> bool:
        """Whether the label is wanted, or changes the name of one that is."""
        return self._wants(name) or self._wants(name + EXTRACTED)

    def _add(self, source: str, name: str, values: pa.Array, *, has_column: bool = True) -> None:
        if name == self.number and (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            texts = values.cast(pa.float64(), safe=False) if values.null_count < len(values) else None
        else:
            texts = _texts(values)
        if texts is not None:
            self.metadata.append((_SOURCES[source], has_column, name, texts))

    def add_fields(self) -> None:
        """Add the labels made from columns of the signal."""
        stored = set(self.batch.schema.names)
        derived = plain(self.batch.column(DERIVED)) if DERIVED in stored else None
        for name, (column, *_) in FIELDS.items():
            if column in stored and self._may_want(name):
                values = sent(self.batch.column(column), column, derived)
                self._add("field", name, values)
        for name in SCOPE_FIELDS:
            if name in stored and self._may_want(name):
                self._add("scope_field", name, self.batch.column(name))
        # Only queries that name the fingerprint see it: to Loki it is no label.
        if self.names is not None and FINGERPRINT in self.names and FINGERPRINT in stored:
            self._add("field", FINGERPRINT, self.batch.column(FINGERPRINT))
        if self._may_want(SERVICE_NAME):
            self.stream[SERVICE_NAME] = filled(self.batch, ALWAYS[SERVICE_NAME], UNKNOWN_SERVICE)
        if self._may_want(DETECTED_LEVEL):
            self._add("level", DETECTED_LEVEL, filled(self.batch, ALWAYS[DETECTED_LEVEL], UNKNOWN_LEVEL))

    def add_attributes(self, keys: Keys) -> None:
        """Add the labels made from attributes, in their columns and in the overflow."""
        stored = self.batch.schema.names
        spelled = spelled_rows(self.batch.column(SPELLED)) if SPELLED in stored else {}
        for column in stored:
            level, _, rest = column.partition("_")
            if level not in LEVELS or column in SCOPE_FIELDS:
                continue
            usual = keys.get(column, (rest,))[0]
            variants = spelled.get(column, {})
            chosen = [key for key in (usual, *variants) if self._may_want(loki_label(key))]
            if not chosen:
                continue
            values = self.batch.column(column)
            usual_rows = ~np.logical_or.reduce(list(variants.values())) if variants else None
            for key in chosen:
                rows = usual_rows if key == usual else variants[key]
                self._add_attribute(level, key, values if rows is None else _where(values, rows))
        if OVERFLOW in stored:
            self._add_overflow(keys)

    def _add_overflow(self, keys: Keys) -> None:
        rows = self.batch.num_rows
        for name, entry in exploded(self.batch.column(OVERFLOW)):
            level, _, rest = name.partition("_")
            key = keys.get(name, (rest,))[0]
            if level in LEVELS and self._may_want(loki_label(key)):
                index = np.zeros(rows, np.int64)
                absent = np.ones(rows, np.bool_)
                index[entry.rows], absent[entry.rows] = entry.index, False
                values = entry.source.take(pa.array(index, mask=absent))
                self._add_attribute(level, key, values, has_column=False)

    def _add_attribute(self, level: str, key: str, values: pa.Array | None, *, has_column: bool = True) -> None:
        if values is None:
            return
        if level == "resource" and key in STREAM_KEYS:
            texts = _texts(values)
            if texts is not None and key != "service.name":
                name = loki_label(key)
                had = self.stream.get(name)
                self.stream[name] = texts if had is None else pc.coalesce(plain(had), plain(texts))
        else:
            self._add(level, loki_label(key), values, has_column=has_column)


def sent(values: pa.Array, column: str, derived: pa.Array | None) -> pa.Array:
    """Return the values of a field as the sender gave them: what ingest derived is null, and so is a count of zero."""
    if column in ("flags", "dropped_attributes_count"):
        return pc.if_else(pc.equal(values, 0), None, values)
    if column == "observed_timestamp":
        # Times hardly repeat.
        return as_text(values.cast(pa.int64()))
    if derived is None or column not in ("severity", "severity_number") or derived.null_count == len(derived):
        return values
    given = pc.invert(pc.fill_null(pc.equal(derived, column), False))
    return pc.if_else(given, plain(values), None)


def filled(batch: pa.RecordBatch, column: str, default: str) -> pa.Array:
    """Return the column with the default where it is null or empty."""
    if column not in batch.schema.names or (texts := _texts(batch.column(column))) is None:
        rows = np.zeros(batch.num_rows, np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(rows), pa.array([default]))
    if not texts.null_count:
        return texts
    if pa.types.is_dictionary(texts.type):
        words = texts.dictionary.to_pylist()
        indices = texts.indices.fill_null(len(words))
        return pa.DictionaryArray.from_arrays(indices, pa.array([*words, default], pa.string()))
    return texts.fill_null(default)


def _texts(values: pa.Array) -> pa.Array | None:
    """Return the values as labels: text without empty values. None if no row has one."""
    if pa.types.is_nested(values.type) or values.null_count == len(values):
        return None
    if pa.types.is_dictionary(values.type):
        return _without_empty_words(values)
    if len(values) <= _FEW_ROWS:
        return few_texts(values)
    if not pa.types.is_string(values.type):
        # Numbers repeat, so their texts are made once for each distinct one.
        encoded = values.dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices, _number_texts(encoded.dictionary), safe=False)
    if pc.min(pc.binary_length(values)).as_py() == 0:
        return _where(values, pc.fill_null(pc.not_equal(values, ""), False).to_numpy(zero_copy_only=False))
    return values


def few_texts(values: pa.Array) -> pa.Array | None:
    """The same for few rows: each call of an Arrow kernel takes longer than looking at all of them here."""
    if pa.types.is_float64(values.type):
        return pa.array(_float_texts(values.to_pylist()), pa.string())
    if not pa.types.is_string(values.type):
        return _number_texts(values)
    words = values.to_pylist()
    if "" not in words:
        return values
    left = [word or None for word in words]
    return pa.array(left, pa.string()) if any(left) else None


def _float_texts(values: list[float | None]) -> list[str | None]:
    # All at once: a call for each value would take most of the time.
    joined = "\0".join(map(repr, values)) + "\0"
    if not values or "e" in joined or "n" in joined:
        # Numbers with an exponent, `inf`, `nan`, and nulls.
        return [None if each is None else _float_text(each) for each in values]
    return [*joined.replace(".0\0", "\0")[:-1].split("\0")]


def _float_text(value: float) -> str:
    text = repr(value)
    # Numbers with an exponent, `inf` and `nan` are written in another way.
    return float_text(value) if "e" in text or "n" in text else text.removesuffix(".0")


def _is_text(values: pa.Array) -> bool:
    return bool(pa.types.is_string(values.type) or pa.types.is_dictionary(values.type))


def _without_empty_words(values: pa.DictionaryArray) -> pa.Array | None:
    # Most dictionaries have no empty words, and comparing where words begin takes less than looking for one.
    _, offsets = text_bytes(values.dictionary)
    if not (offsets[1:] == offsets[:-1]).any():
        return values
    at = pc.index(values.dictionary, pa.scalar("")).as_py()
    if at < 0:
        return values
    return _where(values, pc.fill_null(pc.not_equal(values.indices, at), False).to_numpy(zero_copy_only=False))


def _number_texts(numbers: pa.Array) -> pa.Array:
    texts = as_text(numbers)
    if not pa.types.is_floating(numbers.type) or pc.all(pc.is_finite(numbers)).as_py():
        return texts
    named = pc.if_else(pc.is_nan(numbers), "NaN", pc.if_else(pc.greater(numbers, 0), "+Inf", "-Inf"))
    return pc.if_else(pc.is_finite(numbers), texts, named)


def _where(values: pa.Array, mask: Mask) -> pa.Array | None:
    """Return the values of the rows of the mask, null elsewhere; None if no row is left."""
    left = valid(values) & mask
    if not left.any():
        return None
    if pa.types.is_dictionary(values.type):
        indices = pc.if_else(pa.array(left), values.indices, pa.scalar(None, values.indices.type))
        return pa.DictionaryArray.from_arrays(indices, values.dictionary, safe=False)
    return pc.if_else(pa.array(left), values, pa.scalar(None, values.type))
