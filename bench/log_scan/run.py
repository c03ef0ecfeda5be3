"""Runs the cases: `python -m bench log_scan` prints one JSON line per figure, `--quick` over a million records alone.

Times are CPU milliseconds of a process, all threads, and elapsed ones: the best of several runs, in which all take
turns. Cold means that no column was decoded before; hot, that the same was asked before. Bytes are those that a fresh
process asks of the store, as a share of the columns that a full scan would read. `targets.py` says what is wanted.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from bench.log_scan.cases import Case, cases
from bench.log_scan.lines import Lake, lake
from bench.log_scan.peers import FLOOR, PEERS, PeerProcess
from bench.log_scan.source import Segments
from bench.log_scan.targets import Measured, figures, growth
from bench.log_scan.times import best, times_of
from bench.served.report import Report, say

from lakerunner.model.errors import Missing
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.rows.request import RowScan, RowTally
from lakerunner.query.scan.rows.warm import warm
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

QUICK, FULL = (1_000_000,), (1_000_000, 5_000_000, 20_000_000)
DECODED_BYTES = 8 << 30
_THREADS = 8


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a million records, fewer runs")
    parser.add_argument("--rows", type=int, action="append", help="so many records instead; may be repeated")
    parser.add_argument("--runs", type=int, default=3, help="runs of each case; the best counts")
    parser.add_argument("--only", action="append", help="only cases whose name has this text; may be repeated")
    parser.add_argument("--peer", action="append", help="only this peer; may be repeated")
    parser.add_argument("--keep", help="folder for the records, to find them again in the next run")
    parser.add_argument("--load", action="store_true", help="only make the records in the folder of --keep")
    options = parser.parse_args(arguments)
    report = Report()
    measured: dict[int, dict[str, Measured]] = {}
    warm()
    # As query workers do: what is here stays.
    gc.freeze()
    for rows in options.rows or (QUICK if options.quick else FULL):
        with _folder(options.keep, rows) as folder:
            records = lake(folder, rows)
            say(f"{rows:,} records in {len(records.segments)} segments, {records.size_bytes:,} bytes")
            if not options.load:
                runs = 2 if options.quick else options.runs
                chosen = _Chosen(runs, options.only or [""], options.peer)
                measured[rows] = _measure(records, folder, rows, chosen, report)
    sizes = sorted(measured)
    for few, many in itertools.pairwise(sizes):
        for name, of_many in measured[many].items():
            report.tell(*growth(few, measured[few][name], many, of_many))
    report.conclude("one process each; cold: nothing decoded before, the objects are in the disk cache")
    return 0


@contextlib.contextmanager
def _folder(keep: str | None, rows: int) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as name:
            yield Path(name)
    else:
        folder = Path(keep) / str(rows)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is measured: cases whose name has one of the texts, beside these peers; None: all."""

    runs: int
    only: Sequence[str]
    peers: Sequence[str] | None


def _measure(records: Lake, folder: Path, rows: int, chosen: _Chosen, report: Report) -> dict[str, Measured]:
    runs = chosen.runs
    store = open_store(StoreConfig(records.bucket.as_uri()))
    cache = ObjectCache(store, folder / "cache", 100 << 30)
    for segment in records.segments:
        cache.get(segment.key)
    found: dict[str, Measured] = {}
    with (
        ThreadPoolExecutor(_THREADS) as pool,
        tempfile.TemporaryDirectory() as empty,
        _started(folder, rows, chosen) as peers,
    ):

        def ask(case: Case, opener: RowsOpener, tally: RowTally | None = None) -> int:
            source = Segments(opener, records.segments, tally or RowTally(), pool)
            asked = case.asked
            return sum(batch.num_rows for batch in source.rows(asked)) if isinstance(asked, RowScan) else asked(source)

        for case in cases(records):
            if not any(text in case.name for text in chosen.only):
                continue
            fresh = RowTally()
            answer = ask(case, RowsOpener(store, ObjectCache(store, Path(empty), 1)), fresh)
            cold_opener = RowsOpener(store, cache)
            hot_opener = RowsOpener(store, cache, decoded=ByteLru(DECODED_BYTES))
            for name, peer in peers.items():
                theirs = peer.answer(case)
                assert name == FLOOR or theirs == answer, f"{case.name}: {answer}, but {name} says {theirs}"
            calls = {
                "cold": partial(ask, case, cold_opener),
                "hot": partial(ask, case, hot_opener),
            }
            # What is asked a second time is kept for the third.
            for name in ("cold", "hot", "hot"):
                calls[name]()
            # All take turns, because the cores of a shared machine may be slower for seconds.
            turns = [
                {name: times_of(call) for name, call in calls.items()}
                | {name: peer.times(case) for name, peer in peers.items()}
                for _ in range(runs)
            ]
            times = {name: best(turn[name] for turn in turns) for name in turns[0]}
            measured = found[case.name] = Measured(
                case,
                cold=times.pop("cold"),
                hot=times.pop("hot"),
                bytes_percent=100 * fresh.read_bytes / _full_scan_bytes(records, case),
                peers=times,
            )
            report.tell(*figures(rows, measured))
    return found


@contextlib.contextmanager
def _started(folder: Path, rows: int, chosen: _Chosen) -> Iterator[dict[str, PeerProcess]]:
    with contextlib.ExitStack() as stack:
        found: dict[str, PeerProcess] = {}
        for name in PEERS if chosen.peers is None else chosen.peers:
            try:
                found[name] = stack.enter_context(contextlib.closing(PeerProcess(name, folder, rows)))
            except Missing as missing:
                say(f"no figures of a peer: {missing.message} ({missing.hint})")
        yield found


def _full_scan_bytes(records: Lake, case: Case) -> int:
    """The bytes of the columns that a scan without filters reads."""
    total = 0
    for path in records.paths:
        metadata = pq.read_metadata(path)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            chunks = [group.column(leaf) for leaf in range(metadata.num_columns)]
            total += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in case.needs)
    return total


if __name__ == "__main__":
    sys.exit(main())
