"""Halves of calls that wait in the index for their other side.

They are looked up by a number, `key`, and compared by the pair itself. PostgreSQL must use the index of keys whatever
it believes about them: it may know nothing of a new org, takes all keys for few, and would read the whole table.
"""

# ruff: noqa: S608  (no text of others is in the SQL)

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.index.binary_rows import Int64Array, copy_rows, table_of
from lakerunner.index.database import Connection
from lakerunner.model.errors import Unavailable
from lakerunner.model.half_call import HALF
from lakerunner.model.text_bytes import text_bytes
from lakerunner.model.time import TimeRange
from lakerunner.runtime.metrics import GRAPH_HALVES

#: An arbitrary number, equal in every process: first key of the advisory locks of orgs.
_HALVES_LOCK = 0x6C72_6867
#: Stands between values that travel as one text.
_SEPARATOR = "\x1f"
#: Nobody's name or id has these characters for a reason, and PostgreSQL has no text with the second.
_UNSTORABLE = f"[{_SEPARATOR}\\x00]"
#: A key is made of so many bytes of the pair: all of 32 and 16 hex digits.
_KEY_BYTES = 48
#: The key of halves that roles of the release before leave.
_NO_KEY = 0

#: A half that waits: its columns, and the number of its row.
WAITING = HALF.append(pa.field("id", pa.int64()))
_WAITING: LiteralString = (
    "count(*) AS count, string_agg(concat_ws(E'\\x1f', h.pair, h.own, h.is_client, h.service, h.start_ns,"
    " h.duration_ns, h.failed, h.messaging, h.peer, h.id), E'\\x1f') AS halves"
)
_BY_KEY: LiteralString = "FROM service_graph_half h WHERE h.org_id = %s AND h.key = ANY(%s::bigint[])"
#: Those of a fixed size first, as COPY wants them here.
_COPIED = (
    *("key", "org_id", "is_client", "failed", "messaging", "start_ns", "duration_ns"),
    *("pair", "own", "service", "peer"),
)
#: Items that end at the same time look for halves that waited in vain in different parts of them.
_SHARES = 8
#: 2^32 divided by the golden ratio: multiples of it spread evenly.
_GOLDEN = 2_654_435_769

Keys = npt.NDArray[np.int64]


def storable(halves: pa.Table) -> pa.Table:
    """The halves as the index can have them."""
    for place, column in enumerate(HALF):
        if pa.types.is_string(column.type):
            texts = halves.column(place)
            if any(pc.any(pc.match_substring_regex(chunk, _UNSTORABLE)).as_py() for chunk in _suspect(texts)):
                halves = halves.set_column(place, column, pc.replace_substring_regex(texts, _UNSTORABLE, " "))
    return halves


def _suspect(texts: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Chunks that have the bytes of these characters somewhere."""
    for chunk in texts.chunks:
        content, offsets = text_bytes(chunk)
        used = content[offsets[0] : offsets[-1]]
        if np.any((used == 0) | (used == ord(_SEPARATOR))):
            yield chunk


def keys_of(halves: pa.Table) -> Keys:
    """A number for each pair: the 64-bit words of its first 48 bytes, combined by XOR.

    >>> keys_of(pa.table({"pair": ["00000000" * 6, "00000000" * 5 + "00000001", "a"]})).tolist()
    [0, 1, 6989586621679009792]
    """
    pairs = halves.column("pair").combine_chunks().fill_null("")
    content, offsets = text_bytes(pairs)
    lengths = np.diff(offsets)
    if len(lengths) and np.all(lengths == _KEY_BYTES):
        return _xor(content[offsets[0] : offsets[-1]].reshape(-1, _KEY_BYTES))
    padded = np.zeros((len(lengths), _KEY_BYTES), np.uint8)
    for place in range(min(_KEY_BYTES, int(lengths.max(initial=0)))):
        rows = np.flatnonzero(lengths > place)
        padded[rows, place] = content[offsets[rows] + place]
    return _xor(padded)


def _xor(pairs: npt.NDArray[np.uint8]) -> Keys:
    found: Keys = np.bitwise_xor.reduce(pairs.view(">i8"), axis=1).astype(np.int64)
    return found


def waiting_halves(tx: Connection, org_id: uuid.UUID, halves: pa.Table) -> pa.Table:
    """Return the other sides of these halves, as far as they wait, each with the number of its row."""
    if not halves.num_rows:
        return WAITING.empty_table()
    with _by_key(tx):
        found = _by_keys(tx, org_id, keys_of(halves))
    return found.filter(_are_other_sides(found, halves)) if found.num_rows else found


def _by_keys(tx: Connection, org_id: uuid.UUID, keys: Keys) -> pa.Table:
    """All halves with these keys, of either side, and those of other pairs with the same key."""
    statement = f"SELECT {_WAITING} {_BY_KEY}"
    return _halves(tx.execute(statement, [org_id, _parameter(keys)], prepare=False).fetchone())


def halves_within(tx: Connection, org_id: uuid.UUID, time_range: TimeRange, limit: int) -> pa.Table:
    """Halves of spans that began in this time, as far as they wait; at most one more than the limit, in order."""
    row = tx.execute(
        f"SELECT {_WAITING} FROM (SELECT * FROM service_graph_half"
        " WHERE org_id = %s AND start_ns >= %s AND start_ns < %s ORDER BY pair, is_client, own, id LIMIT %s) AS h",
        [org_id, time_range.start_ns, time_range.end_ns, limit + 1],
    ).fetchone()
    return _halves(row)


def hold_halves(tx: Connection, org_id: uuid.UUID) -> None:
    """No other item pairs calls of the org until the transaction ends."""
    tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_HALVES_LOCK, str(org_id)])


def _are_other_sides(found: pa.Table, halves: pa.Table) -> pa.Array:
    """Whether each of those found is the other side of one of the halves."""
    is_client = halves.column("is_client")
    of_clients = pc.is_in(found.column("pair"), value_set=_pairs(halves.filter(is_client)))
    of_servers = pc.is_in(found.column("pair"), value_set=_pairs(halves.filter(pc.invert(is_client))))
    return pc.if_else(found.column("is_client"), of_servers, of_clients)


def _pairs(halves: pa.Table) -> pa.Array:
    return halves.column("pair").combine_chunks()


def _parameter(keys: Keys) -> Int64Array:
    return Int64Array(np.unique(np.append(keys, _NO_KEY)))


@contextmanager
def _by_key(tx: Connection) -> Iterator[None]:
    """Statements in here use the index, and no further processes: those cost more than they do."""
    tx.execute("SET LOCAL enable_seqscan = off; SET LOCAL max_parallel_workers_per_gather = 0")
    yield
    tx.execute("SET LOCAL enable_seqscan TO DEFAULT; SET LOCAL max_parallel_workers_per_gather TO DEFAULT")


def _halves(row: Mapping[str, Any] | None) -> pa.Table:
    if row is None or not row["count"]:
        return WAITING.empty_table()
    return table_of(row["halves"], row["count"], WAITING, _SEPARATOR)


def orgs_of_external(tx: Connection, wait_s: float, limit: int) -> list[uuid.UUID]:
    """Orgs with clients that name the service they called and waited in vain."""
    rows = tx.execute(
        "SELECT DISTINCT org_id FROM service_graph_half"
        " WHERE peer <> '' AND seen_at < now() - make_interval(secs => %s) LIMIT %s",
        [wait_s, limit],
    ).fetchall()
    return [row["org_id"] for row in rows]


def external_halves(tx: Connection, org_id: uuid.UUID, wait_s: float, slot: int | None, limit: int) -> pa.Table:
    """Clients that name the service they called and waited in vain, oldest first; with a slot, an eighth of them."""
    row = tx.execute(
        f"SELECT {_WAITING} FROM (SELECT * FROM service_graph_half"
        " WHERE org_id = %s AND peer <> '' AND seen_at < now() - make_interval(secs => %s)"
        " AND (%s::int IS NULL OR (hashtext(pair) & %s) = %s) ORDER BY seen_at LIMIT %s) AS h",
        [org_id, wait_s, slot, _SHARES - 1, None if slot is None else _share(slot), limit],
    ).fetchone()
    return _halves(row)


def _share(slot: int) -> int:
    """A share for each slot. An item takes several slots in a row, so shares follow from their mixed bits.

    >>> sorted({_share(slot) for slot in range(0, 32, 2)}), sorted({_share(slot) for slot in range(0, 48, 3)})
    ([0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7])
    """
    return (slot * _GOLDEN % (1 << 32)) * _SHARES >> 32


def change_halves(tx: Connection, org_id: uuid.UUID, taken: pa.Table, left: pa.Table) -> None:
    """Delete those taken and add those left. Unavailable if another item changed what this one was computed from."""
    # Two items with the two sides of a call must see each other: one of them waits here.
    hold_halves(tx, org_id)
    with _by_key(tx):
        if taken.num_rows:
            ids = Int64Array(taken.column("id").to_numpy())
            # Not prepared: PostgreSQL hashes an array only if it knows it while it plans.
            deleted = tx.execute(
                f"DELETE {_BY_KEY} AND h.id = ANY(%s::bigint[])",
                [org_id, _parameter(keys_of(taken)), ids],
                prepare=False,
            ).rowcount
            if deleted != taken.num_rows:
                raise Unavailable("cannot commit derived metrics: another item has paired the same calls")
        if left.num_rows:
            _leave(tx, org_id, left)


def _leave(tx: Connection, org_id: uuid.UUID, halves: pa.Table) -> None:
    """Add halves that wait from now on, each once. They are copied: an insert takes twice as long."""
    keys = keys_of(halves)
    known = _by_keys(tx, org_id, keys)
    if known.num_rows and pc.any(_are_other_sides(known, halves)).as_py():
        raise Unavailable("cannot commit derived metrics: the other side of a call came meanwhile")
    # In the order of the index, which is faster to write that way.
    order = np.argsort(keys, kind="stable")
    halves, keys = halves.take(pa.array(order)), keys[order]
    if known.num_rows or np.any(keys[1:] == keys[:-1]):
        is_new = _are_new(halves, known)
        halves, keys = halves.filter(pa.array(is_new)), keys[is_new]
    if not halves.num_rows:
        return
    org = pa.array([org_id.bytes], pa.binary(16)).take(pa.array(np.zeros(len(keys), np.int64)))
    rows = halves.append_column("key", pa.array(keys)).append_column("org_id", org).select(_COPIED)
    with tx.cursor().copy(f"COPY service_graph_half ({', '.join(_COPIED)}) FROM STDIN (FORMAT binary)") as copy:
        copy.write(copy_rows(rows))


def _are_new(halves: pa.Table, known: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether each half is not known, and the first of its kind among these."""
    identities, waiting = _identities(halves), _identities(known)
    codes = pc.dictionary_encode(identities).indices.to_numpy()
    # Codes are given in the order in which texts are seen first.
    seen = np.maximum.accumulate(np.concatenate(([-1], codes[:-1])))
    is_known = pc.is_in(identities, value_set=waiting).to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.bool_] = (codes > seen) & ~is_known
    return found


def _identities(halves: pa.Table) -> pa.Array:
    texts = [halves.column(name).cast(pa.string()) for name in ("pair", "is_client", "own")]
    return pc.binary_join_element_wise(*texts, _SEPARATOR).combine_chunks()


def forget_halves(tx: Connection, keep_s: float, limit: int) -> int:
    """Delete halves whose other side did not come in time, and count them; return how many.

    Producers are not counted: they wait as long whether or not consumers came.
    """
    rows = tx.execute(
        "WITH gone AS (DELETE FROM service_graph_half WHERE ctid IN (SELECT ctid FROM service_graph_half"
        " WHERE seen_at < now() - make_interval(secs => %s) ORDER BY seen_at LIMIT %s)"
        " RETURNING is_client, messaging)"
        " SELECT is_client, messaging, count(*) AS halves FROM gone GROUP BY is_client, messaging",
        [keep_s, limit],
    ).fetchall()
    for row in rows:
        if not (row["is_client"] and row["messaging"]):
            GRAPH_HALVES.labels("unpaired_client" if row["is_client"] else "unpaired_server").inc(row["halves"])
    return sum(row["halves"] for row in rows)
