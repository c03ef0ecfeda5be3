"""Derived metrics in the index: slots, so that no two samples share a time, and halves of calls that wait.

Both are written in the transaction that ends the item, so a killed worker leaves nothing, and a repeated one changes
nothing.
"""

# ruff: noqa: S608  (no text of others is in the SQL)

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.index.database import Connection
from lakerunner.model.errors import Unavailable
from lakerunner.model.half_call import HALF
from lakerunner.runtime.metrics import GRAPH_HALVES

#: An arbitrary number, equal in every process: first key of the advisory locks of orgs.
_HALVES_LOCK = 0x6C72_6867
#: Columns travel as one text each, with this character between the values. One empty value makes no array: it is null.
_SEPARATOR = "\x1f"
_TEXTS: LiteralString = "string_to_array(%s, E'\\x1f')"
_FLAGS: LiteralString = "string_to_array(%s, E'\\x1f')::boolean[]"
#: How COPY has characters that mean something in it. PostgreSQL has no text with the last one.
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", " "))
#: Parameters: pairs, whether they are clients', and the org. Each row is looked up by the key of the table, as in all
#: statements here: PostgreSQL may know nothing of a new org, takes it for one row, and compares all with all.
_OTHER_SIDES: LiteralString = (
    f"FROM (SELECT DISTINCT w.pair, w.is_client FROM unnest({_TEXTS}, {_FLAGS}) AS w(pair, is_client)) AS w"
    " CROSS JOIN LATERAL (SELECT * FROM service_graph_half h"
    " WHERE h.org_id = %s AND h.pair = w.pair AND h.is_client = NOT w.is_client OFFSET 0) AS h"
)
_ALL_COLUMNS: LiteralString = (
    "string_agg(h.pair, E'\\x1f'), string_agg(h.own, E'\\x1f'), string_agg(h.is_client::text, E'\\x1f'),"
    " string_agg(h.service, E'\\x1f'), string_agg(h.start_ns::text, E'\\x1f'),"
    " string_agg(h.duration_ns::text, E'\\x1f'), string_agg(h.failed::text, E'\\x1f'),"
    " string_agg(h.messaging::text, E'\\x1f'), string_agg(h.peer, E'\\x1f')"
)
#: Items that end at the same time look for halves that waited in vain in different parts of them.
_SHARES = 8
#: 2^32 divided by the golden ratio: multiples of it spread evenly.
_GOLDEN = 2_654_435_769


@dataclass(frozen=True, slots=True)
class Derivation:
    """What an item's derived metrics need to be counted exactly once."""

    #: Slot and interval of every derived sample.
    slots: Sequence[tuple[int, int]] = ()
    #: Halves that waited and are now counted, and those that wait from now on (`model/half_call.py`).
    taken: pa.Table = field(default_factory=HALF.empty_table)
    left: pa.Table = field(default_factory=HALF.empty_table)
    #: How many of the taken ones waited in vain, and count as calls to services that send no spans.
    external: int = 0


def next_slots(tx: Connection, count: int, slots: int) -> list[int]:
    """Numbers for so many tasks, each below `slots`. A number comes again only after all others."""
    rows = tx.execute(
        "SELECT nextval('derived_slot_number') AS number FROM generate_series(1, %s)", [count]
    ).fetchall()  # fmt: skip
    return [int(row["number"] % slots) for row in rows]


def waiting_halves(tx: Connection, org_id: uuid.UUID, halves: pa.Table) -> pa.Table:
    """Return the other sides of these halves, as far as they wait."""
    if not halves.num_rows:
        return HALF.empty_table()
    row = tx.execute(
        f"SELECT count(*) AS count, ARRAY[{_ALL_COLUMNS}] AS columns {_OTHER_SIDES}",
        [_joined(halves.column("pair")), _joined(halves.column("is_client")), org_id],
    ).fetchone()
    return _halves(row)


def _halves(row: Mapping[str, Any] | None) -> pa.Table:
    if row is None or not row["count"]:
        return HALF.empty_table()
    texts = [pa.array(text.split(_SEPARATOR), pa.string()) for text in row["columns"]]
    columns = [text.cast(column.type) for text, column in zip(texts, HALF, strict=True)]
    return pa.Table.from_arrays(columns, schema=HALF)


def _joined(column: pa.ChunkedArray) -> str:
    """All values in one text: an array as a parameter takes longer than what is done with it."""
    texts = column.cast(pa.string()).combine_chunks()
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: str = pc.binary_join(whole, _SEPARATOR)[0].as_py()
    if joined.count(_SEPARATOR) >= len(texts) or "\0" in joined:
        # Nobody's name or id has these characters for a reason, and PostgreSQL has no text with the second.
        return _joined(pc.replace_substring_regex(column, "[\\x1f\\x00]", " "))
    return joined


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
        f"SELECT count(*) AS count, ARRAY[{_ALL_COLUMNS}] AS columns FROM (SELECT * FROM service_graph_half"
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


def apply_derivation(tx: Connection, org_id: uuid.UUID, change: Derivation) -> None:
    """Record slots and halves. Unavailable if another item changed what this one was computed from: it comes again."""
    if change.slots:
        recorded = tx.execute(
            "INSERT INTO derived_slot (org_id, interval_start, slot) SELECT %s, w.interval_start, w.slot"
            " FROM unnest(%s::bigint[], %s::int[]) AS w(interval_start, slot) ON CONFLICT DO NOTHING",
            [org_id, [interval for _, interval in change.slots], [slot for slot, _ in change.slots]],
        ).rowcount
        if recorded != len(change.slots):
            raise Unavailable("cannot commit derived metrics: another item has samples at the same times")
    if not change.taken.num_rows and not change.left.num_rows:
        return
    # Two items with the two sides of a call must see each other: one of them waits here.
    tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_HALVES_LOCK, str(org_id)])
    if change.taken.num_rows:
        keys = [_joined(change.taken.column(name)) for name in ("pair", "is_client", "own")]
        deleted = tx.execute(
            "DELETE FROM service_graph_half WHERE ctid = ANY(ARRAY(SELECT h.place"
            f" FROM unnest({_TEXTS}, {_FLAGS}, {_TEXTS}) AS w(pair, is_client, own)"
            " CROSS JOIN LATERAL (SELECT h.ctid AS place FROM service_graph_half h WHERE h.org_id = %s"
            " AND h.pair = w.pair AND h.is_client = w.is_client AND h.own = coalesce(w.own, '') OFFSET 0) AS h))",
            [*keys, org_id],
        ).rowcount
        if deleted != change.taken.num_rows:
            raise Unavailable("cannot commit derived metrics: another item has paired the same calls")
    if change.left.num_rows:
        _wait(tx, org_id, change.left)


def _wait(tx: Connection, org_id: uuid.UUID, halves: pa.Table) -> None:
    """Add halves that wait from now on, each once. They are copied: an insert takes twice as long."""
    halves = halves.take(pa.array(_first_rows(halves)))
    keys = [_joined(halves.column(name)) for name in ("pair", "is_client", "own")]
    known = tx.execute(
        "SELECT w.row, h.is_client <> w.is_client AS is_other"
        f" FROM unnest({_TEXTS}, {_FLAGS}, {_TEXTS}) WITH ORDINALITY AS w(pair, is_client, own, row)"
        " CROSS JOIN LATERAL (SELECT h.is_client FROM service_graph_half h WHERE h.org_id = %s AND h.pair = w.pair"
        " AND (h.is_client <> w.is_client OR h.own = coalesce(w.own, '')) OFFSET 0) AS h",
        [*keys, org_id],
    ).fetchall()
    if any(row["is_other"] for row in known):
        raise Unavailable("cannot commit derived metrics: the other side of a call came meanwhile")
    if known:
        is_new = np.ones(halves.num_rows, np.bool_)
        is_new[[row["row"] - 1 for row in known]] = False
        halves = halves.filter(pa.array(is_new))
    if halves.num_rows:
        with tx.cursor().copy(f"COPY service_graph_half (org_id, {', '.join(HALF.names)}) FROM STDIN") as copy:
            copy.write(_lines(org_id, halves))


def _first_rows(halves: pa.Table) -> Any:
    """The first row of each half, in the order of the index, which is faster to write that way."""
    texts = [halves.column(name).cast(pa.string()) for name in ("pair", "is_client", "own")]
    keys = pc.binary_join_element_wise(*texts, _SEPARATOR).combine_chunks()
    order = pc.sort_indices(keys).to_numpy()
    ordered = keys.take(pa.array(order))
    is_new = pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1)).to_numpy(zero_copy_only=False)
    return order[np.concatenate(([True], is_new))]


def _lines(org_id: uuid.UUID, halves: pa.Table) -> bytes:
    """The rows as COPY reads them."""
    columns = []
    for column in halves.columns:
        texts = column.cast(pa.string())
        if pa.types.is_string(column.type):
            for plain, written in _ESCAPES:
                texts = pc.replace_substring(texts, plain, written)
        columns.append(texts)
    lines = pc.binary_join_element_wise(str(org_id), *columns, "\t").combine_chunks()
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    text: str = pc.binary_join(whole, "\n")[0].as_py()
    return text.encode() + b"\n"


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


def forget_slots(tx: Connection, keep_s: float, limit: int) -> int:
    """Delete slots of old items. Later data may, once in thousands of items, share the time of a sample."""
    return tx.execute(
        "DELETE FROM derived_slot WHERE ctid IN (SELECT ctid FROM derived_slot"
        " WHERE made_at < now() - make_interval(secs => %s) ORDER BY made_at LIMIT %s)",
        [keep_s, limit],
    ).rowcount
