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
from lakerunner.query.scan.rows.conditions.id_runs import ids_of

_CLIENTS, _SERVERS = ("client", "producer"), ("server", "consumer")
#: Attributes of a client span that name the database it called; the first that it has is the node.
_DATABASES = ("attr_db_name", "attr_db_namespace", "attr_db_system", "attr_db_system_name")
_DATABASE, _MESSAGING, _EXTERNAL = "database", "messaging_system", "virtual_node"
_NEEDED = (
    *("trace_id", "span_id", "parent_span_id", "kind", "service_name", "status_code"),
    *("start_timestamp", "duration_ns"),
)
_SPAN_DIGITS = 16
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
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
    #: Places, among the halves given, of those that wait no longer, ascending.
    used: Ints


def columns_of_calls(spans: pa.Table, peers: Sequence[str] = ()) -> pa.Table:
    """What `calls_of` reads of spans."""
    names = dict.fromkeys((*_NEEDED, *_DATABASES, *peers))
    return spans.select([name for name in names if name in spans.column_names])


def calls_of(spans: pa.Table, peers: Sequence[str] = ()) -> tuple[pa.Table, pa.Table]:
    """Return the edges of calls whose sides are both among the spans, and of calls to databases; and the halves left.

    Spans without an id or parent are no half. `peers` are the columns of attributes that name the service which a
    client called, the first that it has.
    """
    spans = columns_of_calls(spans, peers).combine_chunks()
    kinds = pc.index_in(_plain(spans.column("kind")), value_set=pa.array((*_CLIENTS, *_SERVERS)))
    kind = kinds.combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False)
    is_client = ((kind == 0) | (kind == 1)) & spans.column("span_id").is_valid().to_numpy()
    is_server = (kind > 1) & spans.column("parent_span_id").is_valid().to_numpy()
    edges = []
    node = _first_text(spans, _DATABASES)
    if node is not None:
        called = is_client & pc.not_equal(node, "").to_numpy()
        rows = pa.array(np.flatnonzero(called))
        edges.append(_database_edges(spans.take(rows), node.take(rows)))
        is_client &= ~called
    clients, servers = np.flatnonzero(is_client), np.flatnonzero(is_server)
    client, server = _matched(spans, clients, servers)
    is_messaging = (kind == 1) | (kind == 3)
    edges.append(_edges(spans, client, server, is_messaging))
    # A producer goes on waiting.
    is_client[client[~is_messaging[client]]] = False
    is_server[server] = False
    halves = []
    for is_left, column, is_clients in ((is_client, "span_id", True), (is_server, "parent_span_id", False)):
        if is_left.any():
            left = spans.take(pa.array(np.flatnonzero(is_left)))
            halves.append(_halves(left, column, peers if is_clients else (), is_client=is_clients))
    return pa.concat_tables(edges), pa.concat_tables(halves) if halves else HALF.empty_table()


def _matched(spans: pa.Table, clients: Ints, servers: Ints) -> tuple[Ints, Ints]:
    """The rows of both sides of each call. A few more may be among the halves left: `pair` compares those by texts."""
    if not len(clients) or not len(servers):
        return clients[:0], servers[:0]
    traces, _ = ids_of(_whole(spans.column("trace_id")))
    own, _ = ids_of(_whole(spans.column("span_id")).take(pa.array(clients)), _SPAN_DIGITS)
    parents, _ = ids_of(_whole(spans.column("parent_span_id")).take(pa.array(servers)), _SPAN_DIGITS)
    of_trace = (traces.high * _FACTOR ^ traces.low) * _FACTOR
    wanted, known = (of_trace[servers] ^ parents.low) * _FACTOR, (of_trace[clients] ^ own.low) * _FACTOR
    found = pc.index_in(pa.array(wanted), value_set=pa.array(known)).fill_null(-1).to_numpy()
    place = np.flatnonzero(found >= 0)
    at = found[place]
    client, server = clients[at], servers[place]
    same = (traces.high[client] == traces.high[server]) & (traces.low[client] == traces.low[server])
    same &= (own.low[at] == parents.low[place]) & (own.high[at] == parents.high[place])
    return client[same], server[same]


def _edges(spans: pa.Table, client: Ints, server: Ints, is_messaging: npt.NDArray[np.bool_]) -> pa.Table:
    failed = _whole(_failed(spans)).to_numpy(zero_copy_only=False)
    service, duration = _whole(_named(spans)), spans.column("duration_ns").to_numpy()
    return pa.table(
        [
            service.take(pa.array(client)),
            service.take(pa.array(server)),
            pc.if_else(pa.array(is_messaging[client] | is_messaging[server]), _MESSAGING, ""),
            pc.if_else(pa.array(failed[client] | failed[server]), "true", "false"),
            pa.array(spans.column("start_timestamp").cast(pa.int64()).to_numpy()[client]),
            pa.array(duration[client]),
            pa.array(duration[server]),
        ],
        schema=EDGE,
    )


def pair(halves: pa.Table) -> Paired:
    """Pair clients with servers. Each server is one call; a client may be paired with several servers."""
    is_client = halves.column("is_client").to_numpy()
    clients, servers = np.flatnonzero(is_client), np.flatnonzero(~is_client)
    keys = _whole(halves.column("pair"))
    found = pc.index_in(keys.take(pa.array(servers)), value_set=keys.take(pa.array(clients)))
    match = found.fill_null(-1).to_numpy(zero_copy_only=False)
    server, client = servers[match >= 0], clients[match[match >= 0]]
    if not len(server):
        return Paired(EDGE.empty_table(), np.zeros(0, np.int64))
    service = _whole(halves.column("service"))
    start_ns, duration_ns, failed, messaging = (
        halves.column(name).to_numpy() for name in ("start_ns", "duration_ns", "failed", "messaging")
    )
    edges = pa.table(
        [
            service.take(pa.array(client)),
            service.take(pa.array(server)),
            pc.if_else(pa.array(messaging[client] | messaging[server]), _MESSAGING, ""),
            pc.if_else(pa.array(failed[client] | failed[server]), "true", "false"),
            pa.array(start_ns[client]),
            pa.array(duration_ns[client]),
            pa.array(duration_ns[server]),
        ],
        schema=EDGE,
    )
    used = np.zeros(halves.num_rows, np.bool_)
    used[client[~messaging[client]]] = True
    used[server] = True
    return Paired(edges, np.flatnonzero(used))


def without(halves: pa.Table, places: Ints) -> pa.Table:
    """The other halves."""
    if not len(places):
        return halves
    is_left = np.ones(halves.num_rows, np.bool_)
    is_left[places] = False
    return halves.filter(pa.array(is_left))


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


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


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
