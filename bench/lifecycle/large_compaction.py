"""Peak memory of one merge whose inputs have 8 GB of rows.

The gigabytes are those of the rows in memory, as Arrow has them; a merge takes at most a gigabyte of files
(`pipeline.compact_target_bytes`), which is about as much. One segment is written, and the others are copies of it with
ids of their own: they overlap entirely, which is the worst case of a merge.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from bench.lifecycle.compaction import apart, line, make_inputs, merge

from lakerunner.model.ids import fresh_id
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.compact.task import CompactTask
from lakerunner.store import keys
from lakerunner.store.open import open_store

_INPUTS = 8
_LIMIT_MB = 2_048.0
_SAMPLE_ROWS = 100_000


def measure(quick: bool) -> Iterator[str]:
    wanted_bytes = (8 << 30) // (80 if quick else 1)
    with tempfile.TemporaryDirectory(prefix="bench-compaction-") as name:
        folder = Path(name)
        row_bytes = _row_bytes(folder / "sample")
        task = _copied(make_inputs(folder, LOGS, 1, int(wanted_bytes / _INPUTS / row_bytes)))
        spent = apart(merge, task, warm_up=True)
        files_mb = sum(each.size_bytes for each in task.inputs) / 1e6
        rows = sum(each.row_count for each in task.inputs)
        case = f"{_INPUTS} segments of logs, {rows * row_bytes / 1e9:.2f} GB of {rows} rows, {files_mb:.0f} MB of files"
        yield line(f"peak memory, {case}", spent["peak_mb"], "MB", "lower", "limit", _LIMIT_MB)


def _row_bytes(folder: Path) -> float:
    """Of a row in memory."""
    task = make_inputs(folder, LOGS, 1, _SAMPLE_ROWS)
    table = pq.read_table(folder / "bucket" / keys.segment_keys(task.inputs[0])[0])
    return float(table.nbytes) / table.num_rows


def _copied(task: CompactTask) -> CompactTask:
    store = open_store(task.store)
    (first,) = task.inputs
    copies = [replace(first, segment_id=fresh_id()) for _ in range(_INPUTS - 1)]
    for copy in copies:
        for source, target in zip(keys.segment_keys(first), keys.segment_keys(copy), strict=True):
            store.put(target, store.get(source))
    return replace(task, inputs=(first, *copies))
