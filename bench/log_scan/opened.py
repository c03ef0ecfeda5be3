"""One lake of the benchmark, open: asks cases of it, cold and hot, and of the peers over the same files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from bench.log_scan.cases import Case
from bench.log_scan.lines import Lake, lake
from bench.log_scan.peers import FLOOR, PEERS, PeerProcess
from bench.log_scan.source import Segments
from bench.log_scan.targets import Measured
from bench.log_scan.times import Times, best, times_of
from bench.served.report import say

from lakerunner.model.errors import Missing
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.rows.request import RowScan, RowTally
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store

_DECODED_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class OpenLake:
    rows: int
    records: Lake
    peers: Mapping[str, PeerProcess]
    _store: ObjectStore
    _cache: ObjectCache
    _empty: ObjectCache
    _pool: Executor

    def ready(self, case: Case) -> ReadyCase:
        """Ask the case until cold is cold and hot is hot. All must give the same answer."""
        fresh = RowTally()
        answer = self._ask(case, RowsOpener(self._store, self._empty), fresh)
        for name, peer in self.peers.items():
            theirs = peer.answer(case)
            assert name == FLOOR or theirs == answer, f"{case.name}: {answer}, but {name} says {theirs}"
        hot = RowsOpener(self._store, self._cache, decoded=ByteLru(_DECODED_BYTES))
        calls = {
            "cold": partial(self._ask, case, RowsOpener(self._store, self._cache)),
            "hot": partial(self._ask, case, hot),
        }
        # What is asked a second time is kept for the third.
        for name in ("cold", "hot", "hot"):
            calls[name]()
        return ReadyCase(case, calls, self.peers, 100 * fresh.read_bytes / self._full_scan_bytes(case))

    def _ask(self, case: Case, opener: RowsOpener, tally: RowTally | None = None) -> int:
        source = Segments(opener, self.records.segments, tally or RowTally(), self._pool)
        asked = case.asked
        return sum(batch.num_rows for batch in source.rows(asked)) if isinstance(asked, RowScan) else asked(source)

    def _full_scan_bytes(self, case: Case) -> int:
        """The bytes of the columns that a scan without filters reads."""
        total = 0
        for path in self.records.paths:
            metadata = pq.read_metadata(path)
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                chunks = [group.column(leaf) for leaf in range(metadata.num_columns)]
                total += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in case.needs)
        return total


@dataclass(frozen=True, slots=True)
class ReadyCase:
    case: Case
    _calls: Mapping[str, Callable[[], int]]
    _peers: Mapping[str, PeerProcess]
    _bytes_percent: float

    def turn(self) -> dict[str, Times]:
        """Time everything once."""
        ours = {name: times_of(call) for name, call in self._calls.items()}
        return ours | {name: peer.times(self.case) for name, peer in self._peers.items()}

    def measured(self, turns: Sequence[Mapping[str, Times]]) -> Measured:
        times = {name: best(turn[name] for turn in turns) for name in turns[0]}
        return Measured(
            self.case,
            cold=times.pop("cold"),
            hot=times.pop("hot"),
            bytes_percent=self._bytes_percent,
            peers=times,
        )


@contextlib.contextmanager
def open_lake(folder: Path, rows: int, pool: Executor, peers: Sequence[str] | None) -> Iterator[OpenLake]:
    """Make or find the records, fetch their objects to the disk, and start these peers; None: all."""
    records = lake(folder, rows)
    say(f"{rows:,} records in {len(records.segments)} segments, {records.size_bytes:,} bytes")
    store = open_store(StoreConfig(records.bucket.as_uri()))
    cache = ObjectCache(store, folder / "cache", 100 << 30)
    for segment in records.segments:
        cache.get(segment.key)
    with tempfile.TemporaryDirectory() as empty, contextlib.ExitStack() as stack:
        found: dict[str, PeerProcess] = {}
        for name in PEERS if peers is None else peers:
            try:
                found[name] = stack.enter_context(contextlib.closing(PeerProcess(name, folder, rows)))
            except Missing as missing:
                say(f"no figures of a peer: {missing.message} ({missing.hint})")
        yield OpenLake(rows, records, found, store, cache, ObjectCache(store, Path(empty), 1), pool)
