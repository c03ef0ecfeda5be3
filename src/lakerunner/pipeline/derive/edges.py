"""Requests between services: the client's and the server's span of a call are paired by trace and parent id.

A *half* is a span that waits for its other side: a client (or producer) for the server whose parent it is, a server
(or consumer) for its parent. A client whose call went to a database has no other side and is an edge at once. A client
makes one call: once it is paired, it waits for no further server. A producer may have many consumers, and goes on
waiting. A client that waited in vain, and names the service it called, made a call to a service that sends no spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.half_call import HALF

_CLIENTS, _SERVERS = ("client", "producer"), ("server", "consumer")
#: Attributes of a client span that name the database it called; the first that it has is the node.
_DATABASES = ("attr_db_name", "attr_db_namespace", "attr_db_system", "attr_db_system_name")
_DATABASE, _MESSAGING, _EXTERNAL = "database", "messaging_system", "virtual_node"
#: A service without a name.
_UNKNOWN = "unknown"

EDGE = pa.schema(
    [
        pa.field("client", pa.string()),
        pa.field("server", pa.string()),
        pa.field("connection_type", pa.string()),
        pa.field("failed", pa.string()),
        pa.field("start_ns", pa.int64()),
        pa.field("client_ns", pa.int64()),
        pa.field("server_ns", pa.int64()),
    ]
)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Paired:
    edges: pa.Table
    #: Halves that wait on.
    left: pa.Table
    #: Places, among the halves given, of those that wait no longer.
    used: Ints


def halves_of(spans: pa.Table, peers: Sequence[str] = ()) -> tuple[pa.Table, pa.Table]:
    """Return the edges to databases, and the halves of calls to services. Spans without an id or parent are no half.

    `peers` are the columns of attributes that name the service which a client called, the first that it has.
    """
    kind = _plain(spans.column("kind"))
    client = pc.and_(pc.is_in(kind, value_set=pa.array(_CLIENTS)), spans.column("span_id").is_valid())
    server = pc.and_(pc.is_in(kind, value_set=pa.array(_SERVERS)), spans.column("parent_span_id").is_valid())
    client, server = pc.fill_null(client, False), pc.fill_null(server, False)
    edges = EDGE.empty_table()
    node = _first_text(spans, _DATABASES)
    if node is not None:
        called = pc.and_(client, pc.not_equal(node, ""))
        edges = _database_edges(spans.filter(called), node.filter(called))
        client = pc.and_(client, pc.invert(called))
    parts = []
    for mask, id_column, is_client in ((client, "span_id", True), (server, "parent_span_id", False)):
        chosen = spans.filter(mask)
        if chosen.num_rows:
            parts.append(_halves(chosen, id_column, peers if is_client else (), is_client=is_client))
    return edges, pa.concat_tables(parts) if parts else HALF.empty_table()


def pair(halves: pa.Table) -> Paired:
    """Pair clients with servers. Each server is one call; a client may be paired with several servers."""
    is_client = halves.column("is_client").to_numpy()
    clients, servers = np.flatnonzero(is_client), np.flatnonzero(~is_client)
    if not len(clients) or not len(servers):
        return Paired(EDGE.empty_table(), halves, np.zeros(0, np.int64))
    keys = halves.column("pair").combine_chunks()
    found = pc.index_in(keys.take(pa.array(servers)), value_set=keys.take(pa.array(clients)))
    match = found.fill_null(-1).to_numpy(zero_copy_only=False)
    server, client = servers[match >= 0], clients[match[match >= 0]]
    if not len(server):
        return Paired(EDGE.empty_table(), halves, np.zeros(0, np.int64))
    sides = {"client": halves.take(pa.array(client)), "server": halves.take(pa.array(server))}
    failed = pc.or_(sides["client"].column("failed"), sides["server"].column("failed"))
    messaging = pc.or_(sides["client"].column("messaging"), sides["server"].column("messaging"))
    edges = pa.table(
        [
            sides["client"].column("service"),
            sides["server"].column("service"),
            pc.if_else(messaging, _MESSAGING, ""),
            pc.if_else(failed, "true", "false"),
            sides["client"].column("start_ns"),
            sides["client"].column("duration_ns"),
            sides["server"].column("duration_ns"),
        ],
        schema=EDGE,
    )
    producers = halves.column("messaging").to_numpy()
    used = np.unique(np.concatenate([client[~producers[client]], server]))
    left = np.ones(halves.num_rows, np.bool_)
    left[used] = False
    return Paired(edges, halves.filter(pa.array(left)), used)


def external_edges(halves: pa.Table) -> pa.Table:
    """The calls of clients to the services that they name, which send no spans."""
    duration = halves.column("duration_ns")
    zeros = pa.array(np.zeros(halves.num_rows, np.int64))
    return pa.table(
        [
            halves.column("service"),
            halves.column("peer"),
            pa.array([_EXTERNAL], pa.string()).take(zeros),
            pc.if_else(halves.column("failed"), "true", "false"),
            halves.column("start_ns"),
            duration,
            duration,
        ],
        schema=EDGE,
    )


def _first_text(spans: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray | None:
    """The first of these columns that has a value, for each span; empty without one. None if no column is there."""
    found = [_plain(spans.column(name)) for name in columns if name in spans.column_names]
    if not found:
        return None
    texts = [pc.cast(each, pa.string()) for each in found]
    filled = [pc.if_else(pc.equal(each, ""), pa.scalar(None, pa.string()), each) for each in texts]
    return pc.fill_null(pc.coalesce(*filled), "")


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _named(spans: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(_plain(spans.column("service_name")), _UNKNOWN)


def _failed(spans: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(_plain(spans.column("status_code")), "error"), False)


def _halves(spans: pa.Table, id_column: str, peers: Sequence[str], *, is_client: bool) -> pa.Table:
    size = spans.num_rows
    empty = pa.array([""], pa.string()).take(pa.array(np.zeros(size, np.int64)))
    kind = _plain(spans.column("kind"))
    own = pc.fill_null(spans.column("span_id"), "")
    messaging = pc.is_in(kind, value_set=pa.array(["producer", "consumer"]))
    peer = _first_text(spans, peers)
    return pa.table(
        [
            pc.binary_join_element_wise(spans.column("trace_id"), spans.column(id_column), ""),
            empty if is_client else own,
            pa.array(np.full(size, is_client)),
            _named(spans),
            spans.column("start_timestamp").cast(pa.int64()),
            spans.column("duration_ns"),
            _failed(spans),
            messaging,
            empty if peer is None else pc.if_else(messaging, "", peer),
        ],
        schema=HALF,
    )


def _database_edges(spans: pa.Table, node: pa.ChunkedArray) -> pa.Table:
    zeros = pa.array(np.zeros(spans.num_rows, np.int64))
    duration = spans.column("duration_ns")
    return pa.table(
        [
            _named(spans),
            node,
            pa.array([_DATABASE], pa.string()).take(zeros),
            pc.if_else(_failed(spans), "true", "false"),
            spans.column("start_timestamp").cast(pa.int64()),
            duration,
            duration,
        ],
        schema=EDGE,
    )
