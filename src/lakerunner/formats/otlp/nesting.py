"""Flatten resource > scope > record into records that know the position of their scope and resource."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Entry, Ints, Level
from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.otlp.anyvalue import Nested, Pairs
from lakerunner.model.time import MAX_TIME_NS

_ZERO_IDS = pa.array(["", "0" * 16, "0" * 32])
_MAX_TIME = np.uint64(MAX_TIME_NS)
#: The resource attribute that names the service, in every signal.
SERVICE_NAME = "service.name"


@dataclass(frozen=True, slots=True)
class Nest:
    """The records of a decoded message, each with the position of its scope and resource."""

    records: pa.StructArray
    scope_of: Ints
    resource_of: Ints
    #: One element per resource and per scope, as sent.
    resources: pa.StructArray
    scopes: pa.StructArray
    #: The messages around the scopes, which hold `schema_url`; one element per scope.
    scope_parents: pa.StructArray


def unnest(parents: pa.StructArray, scopes_name: str, records_name: str) -> Nest:
    resource_of_scope, scope_parents = flatten(parents.field(scopes_name))
    scope_of, records = flatten(scope_parents.field(records_name))
    return Nest(
        records=records,
        scope_of=scope_of,
        resource_of=resource_of_scope[scope_of],
        resources=parents.field("resource"),
        scopes=scope_parents.field("scope"),
        scope_parents=scope_parents,
    )


def flatten(lists: pa.ListArray) -> tuple[Ints, pa.Array]:
    """Return the position of each item's list, and the items."""
    return np.repeat(np.arange(len(lists)), counts(lists)), lists.flatten()


def counts(lists: pa.ListArray) -> Ints:
    sizes: Ints = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    return sizes


def shared_levels(
    nest: Nest,
    limits: Limits,
    tally: Tally,
    service_keys: Sequence[Sequence[str]] = ((SERVICE_NAME,),),
    *,
    nested: Nested = Nested.JSON,
) -> tuple[Level, Level, pa.Array]:
    """Return the attributes of resources, those of scopes, and the service name of each resource.

    The name is the first attribute under one of the first keys, else under one of the next keys.
    """
    pairs = Pairs.of(member(nest.resources, "attributes"), limits, tally, nested=nested)
    entries = list(pairs.entries(limits, tally))
    resource = Level("resource", len(nest.resources), entries, nest.resource_of, pairs.empty())
    scope_pairs = Pairs.of(member(nest.scopes, "attributes"), limits, tally, nested=nested)
    own = [entry for name in ("name", "version") for entry in _named(name, member(nest.scopes, name))]
    scope_entries = own + list(scope_pairs.entries(limits, tally))
    scope = Level("scope", len(nest.scopes), scope_entries, nest.scope_of, scope_pairs.empty())
    names = [null_if_empty(attribute_text(pairs, keys)) for keys in service_keys]
    return resource, scope, pc.coalesce(*names)


def member(struct: pa.StructArray, name: str) -> pa.Array:
    """Return a field of the struct; null or empty where the struct itself is absent."""
    return struct.flatten()[struct.type.get_field_index(name)]


def attribute_text(pairs: Pairs, keys: Sequence[str]) -> pa.Array:
    """Return the first attribute under one of the keys as text, one element per row of the level."""
    index = np.zeros(pairs.size, np.int64)
    absent = np.ones(pairs.size, np.bool_)
    codes = [code for code, key in enumerate(pairs.keys) if key in keys]
    if not codes:
        return pa.nulls(pairs.size, pa.string())
    found = np.flatnonzero(np.isin(pairs.codes, codes))[::-1]
    index[pairs.rows[found]] = found
    absent[pairs.rows[found]] = False
    return pairs.values.text().take(pa.array(index, mask=absent))


def _named(name: str, values: pa.Array) -> list[Entry]:
    """Return a field of the scope as if it were an attribute."""
    present = np.flatnonzero(pc.fill_null(pc.not_equal(values, ""), False).to_numpy(zero_copy_only=False))
    # Placed behind all attributes, so that an attribute of that name does not get its column.
    return [Entry(name, present, values, present, np.full(len(present), 1 << 62))] if len(present) else []


def hex_ids(ids: pa.Array) -> pa.Array:
    """Return ids as lower-case hex. Empty ids and zeros mean "no id" and become null."""
    offsets = ids.buffers()[1]
    starts = np.frombuffer(offsets, np.int32, len(ids) + 1, ids.offset * 4)
    first, last = int(starts[0]), int(starts[-1])
    data = ids.buffers()[2]
    digits = memoryview(data)[first:last].hex().encode() if data is not None and last > first else b""
    text = pa.StringArray.from_buffers(len(ids), pa.py_buffer((starts - first) * np.int32(2)), pa.py_buffer(digits))
    return pc.if_else(pc.is_in(text, _ZERO_IDS), pa.scalar(None, pa.string()), text)


def nanos(array: pa.Array) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return unsigned nanoseconds as signed ones, and a mask of those that the index cannot hold."""
    unsigned = array.to_numpy(zero_copy_only=False)
    return unsigned.view(np.int64), unsigned >= _MAX_TIME


def timestamps(values: Ints, unit: str, absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers as Arrow timestamps in UTC; null where absent."""
    return pa.array(values, mask=absent).view(pa.timestamp(unit, "UTC"))


def null_if_empty(text: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
