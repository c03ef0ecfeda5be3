"""Resource > scope > record as flat records that know their scope and resource: offsets, no loop over rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Entry, Ints, Level
from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.otlp.anyvalue import Pairs

_ZERO_IDS = pa.array(["", "0" * 16, "0" * 32])
_MAX_TIME = np.uint64(np.iinfo(np.int64).max)
#: The resource attribute that names the service, whatever the signal.
SERVICE_NAME = "service.name"


@dataclass(frozen=True, slots=True)
class Nest:
    """The records of a decoded message, each with the position of its scope and resource."""

    records: pa.StructArray
    scope_of: Ints
    resource_of: Ints
    #: One element a resource, and one a scope: struct arrays as sent.
    resources: pa.StructArray
    scopes: pa.StructArray
    #: What stands beside the scope itself (`schema_url`), one element a scope.
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
    """The position of the list that each item came from, and the items."""
    return np.repeat(np.arange(len(lists)), counts(lists)), lists.flatten()


def counts(lists: pa.ListArray) -> Ints:
    sizes: Ints = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    return sizes


def shared_levels(nest: Nest, limits: Limits, tally: Tally) -> tuple[Level, Level, pa.Array]:
    """The attributes of resources and of scopes, and each resource's service name."""
    pairs = Pairs.of(member(nest.resources, "attributes"), limits, tally)
    resource = Level("resource", len(nest.resources), list(pairs.entries()), nest.resource_of)
    scope_pairs = Pairs.of(member(nest.scopes, "attributes"), limits, tally)
    own = [entry for name in ("name", "version") for entry in _named(name, member(nest.scopes, name))]
    scope = Level("scope", len(nest.scopes), own + list(scope_pairs.entries()), nest.scope_of)
    return resource, scope, attribute_text(pairs, SERVICE_NAME)


def member(struct: pa.StructArray, name: str) -> pa.Array:
    """A field of the struct, null or empty where the struct itself is absent."""
    array = struct.flatten()[struct.type.get_field_index(name)]
    return array


def attribute_text(pairs: Pairs, key: str) -> pa.Array:
    """One attribute as text, one element per row of the level; the first where a row has the key twice."""
    index = np.zeros(pairs.size, np.int64)
    absent = np.ones(pairs.size, np.bool_)
    if key in pairs.keys:
        mine = np.flatnonzero(pairs.codes == pairs.keys.index(key))[::-1]
        index[pairs.rows[mine]] = mine
        absent[pairs.rows[mine]] = False
    if bool(absent.all()):
        return pa.nulls(pairs.size, pa.string())
    return pairs.values.text().take(pa.array(index, mask=absent))


def _named(name: str, values: pa.Array) -> list[Entry]:
    """A field of the scope as if it were an attribute of it."""
    present = np.flatnonzero(pc.fill_null(pc.not_equal(values, ""), False).to_numpy(zero_copy_only=False))
    return [Entry(name, present, values, present)] if len(present) else []


def hex_ids(ids: pa.Array) -> pa.Array:
    """Ids as lower-case hex; empty ones and zeros, which mean that there is none, as null."""
    offsets = ids.buffers()[1]
    starts = np.frombuffer(offsets, np.int32, len(ids) + 1, ids.offset * 4)
    first, last = int(starts[0]), int(starts[-1])
    data = ids.buffers()[2]
    digits = memoryview(data)[first:last].hex().encode() if data is not None and last > first else b""
    text = pa.StringArray.from_buffers(len(ids), pa.py_buffer((starts - first) * np.int32(2)), pa.py_buffer(digits))
    return pc.if_else(pc.is_in(text, _ZERO_IDS), pa.scalar(None, pa.string()), text)


def nanos(array: pa.Array) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Unsigned nanoseconds as signed ones, and which of them are too far in the future to be so."""
    unsigned = array.to_numpy(zero_copy_only=False)
    return unsigned.view(np.int64), unsigned > _MAX_TIME


def timestamps(values: Ints, unit: str, absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers as Arrow timestamps in UTC, null where absent."""
    return pa.array(values, mask=absent).view(pa.timestamp(unit, "UTC"))


def null_if_empty(text: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
