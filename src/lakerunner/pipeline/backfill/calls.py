"""Calls between services that began in a stretch of time, counted again from the spans that are left.

A call belongs to the time at which its client's span began. The server's span may have begun earlier or later, and lie
in another segment: tasks pair what they can, and the driver pairs the halves that are left. Halves that wait in the
index were never counted. Those of them that are counted now, or whose spans are gone, wait no longer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.time import TimeRange
from lakerunner.pipeline.derive.edges import calls_of, columns_of_calls, external_edges, pair, without


@dataclass(frozen=True, slots=True)
class CallsWanted:
    #: When clients began whose calls are counted, and when their servers may have begun.
    within: TimeRange
    around: TimeRange
    #: Columns of attributes that name the service which a client called.
    peers: tuple[str, ...]


class SegmentCalls:
    """The calls of a segment, of all rows together."""

    def __init__(self, wanted: CallsWanted) -> None:
        self._wanted = wanted
        self._parts: list[pa.Table] = []

    def add(self, spans: pa.Table) -> None:
        spans = columns_of_calls(spans, self._wanted.peers)
        began_ns = spans.column("start_timestamp").cast(pa.int64()).to_numpy()
        self._parts.append(spans.filter(pa.array(_is_in(began_ns, self._wanted.around))))

    def result(self) -> tuple[pa.Table, pa.Table]:
        """The edges of calls with both sides in the segment, and the halves of others."""
        edges, halves = calls_of(pa.concat_tables(self._parts), self._wanted.peers)
        within = self._wanted.within
        is_wanted = _is_in(halves.column("start_ns").to_numpy(), within)
        is_wanted |= ~halves.column("is_client").to_numpy()
        began_within = _is_in(edges.column("start_ns").to_numpy(), within)
        return edges.filter(pa.array(began_within)), halves.filter(pa.array(is_wanted))


def _is_in(times_ns: npt.NDArray[np.int64], time_range: TimeRange) -> npt.NDArray[np.bool_]:
    return (times_ns >= time_range.start_ns) & (times_ns < time_range.end_ns)


def paired_again(halves: pa.Table, waiting: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The edges of calls with sides in different segments, and the halves that wait no longer.

    A client without a server that names the service it called, and does not wait, made a call to a service that sends
    no spans, or whose span was deleted.
    """
    paired = pair(halves)
    left = without(halves, paired.used)
    clients = left.filter(pc.and_(left.column("is_client"), pc.not_equal(left.column("peer"), "")))
    alone = clients.filter(pc.invert(pc.is_in(_key(clients), value_set=_key(waiting))))
    still_there = pc.is_in(_key(waiting), value_set=_key(left))
    return pa.concat_tables([paired.edges, external_edges(alone)]), waiting.filter(pc.invert(still_there))


def _key(halves: pa.Table) -> pa.Array:
    names = ("pair", "is_client", "own")
    texts = [halves.column(name).cast(pa.string()) for name in names]
    return pc.binary_join_element_wise(*texts, " ").combine_chunks()
