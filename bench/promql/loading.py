"""Load each server with the data sets, once per folder. A file beside the data records what was loaded."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.promql import lake
from bench.promql.remote_write import Block, block_of, requests
from bench.promql.servers import Peer, Prometheus, write
from bench.promql.sets import Kind, MetricSet
from bench.served.folder import is_filled, note_filled
from bench.served.report import say

from lakerunner.index.database import Database

#: Increase it when the generator's output for the same sets changes, so that old data is not reused.
_VERSION = 1


def fill_lake(database: Database, folder: Path, sets: Sequence[MetricSet]) -> None:
    if is_filled(folder, _contents(sets)):
        return
    if (folder / "bucket").exists():
        raise SystemExit(f"cannot load into {folder}: it holds the samples of another run; remove it")
    began = time.monotonic()
    rows = lake.load(database, folder, sets)
    note_filled(folder, _contents(sets))
    say(f"lakerunner: {rows:,} rows written in {time.monotonic() - began:.0f} s")


def fill_peers(peers: Sequence[Peer], sets: Sequence[MetricSet]) -> None:
    """Load the peers over remote write. They are stopped before and afterwards."""
    sets = [metric for metric in sets if not metric.lake_only]
    empty = [peer for peer in peers if not is_filled(peer.folder, _contents(sets))]
    if not empty:
        return
    for peer in empty:
        shutil.rmtree(peer.folder, ignore_errors=True)
        peer.start()
    began = time.monotonic()
    try:
        # Only Prometheus gets native histograms, in the same time slices as floats: its head refuses older samples.
        floats = [block_of(metric) for metric in sets if metric.kind is not Kind.NATIVE]
        natives = [block_of(metric) for metric in sets if metric.kind is Kind.NATIVE]
        for peer in empty:
            blocks = floats + natives if isinstance(peer, Prometheus) else floats
            samples = _send(peer, blocks)
            peer.settle()
            say(f"{peer.name}: {samples:,} samples sent in {time.monotonic() - began:.0f} s")
            began = time.monotonic()
    finally:
        for peer in empty:
            peer.stop()
    for peer in empty:
        note_filled(peer.folder, _contents(sets))


def _send(peer: Peer, blocks: Sequence[Block]) -> int:
    """Send all samples. The next request is encoded while one is being sent."""
    samples = 0
    with ThreadPoolExecutor(1) as sender:
        sending = None
        for count, body in requests(blocks):
            if sending is not None:
                sending.result()
            sending = sender.submit(write, peer, body)
            samples += count
        if sending is not None:
            sending.result()
    return samples


def _contents(sets: Sequence[MetricSet]) -> str:
    return f"{_VERSION} {sets!r}"
