"""Runs the cases: `python -m bench log_scan` prints one JSON line per figure, `--quick` over a million records alone.

Times are CPU milliseconds of a process, all threads, and elapsed ones: the best of several runs, in which lakes of all
sizes and all peers take turns. Cold means that no column was decoded before; hot, that the same was asked before. Bytes
are those that a fresh process asks of the store, as a share of the columns that a full scan would read. `targets.py`
says what is wanted.
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
from pathlib import Path

from bench.log_scan.cases import cases
from bench.log_scan.lines import lake
from bench.log_scan.opened import ReadyCase, open_lake
from bench.log_scan.targets import figures, growth
from bench.served.report import Report

from lakerunner.query.scan.rows.warm import warm

QUICK, FULL = (1_000_000,), (1_000_000, 5_000_000, 20_000_000)
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
    sizes = sorted(options.rows or (QUICK if options.quick else FULL))
    runs = 2 if options.quick else options.runs
    report = Report()
    warm()
    # As query workers do: what is here stays.
    gc.freeze()
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(_folder(options.keep, rows)) for rows in sizes]
        if options.load:
            for folder, rows in zip(folders, sizes, strict=True):
                lake(folder, rows)
            return 0
        pool = stack.enter_context(ThreadPoolExecutor(_THREADS))
        lakes = [
            stack.enter_context(open_lake(folder, rows, pool, options.peer))
            for folder, rows in zip(folders, sizes, strict=True)
        ]
        for of_sizes in zip(*(cases(each.records) for each in lakes), strict=True):
            if any(text in of_sizes[0].name for text in options.only or [""]):
                ready = [each.ready(case) for each, case in zip(lakes, of_sizes, strict=True)]
                _measure(sizes, ready, runs, report)
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


def _measure(sizes: Sequence[int], ready: Sequence[ReadyCase], runs: int, report: Report) -> None:
    """All take turns, because the cores of a shared machine may be slower for seconds or minutes."""
    turns = [[each.turn() for each in ready] for _ in range(runs)]
    measured = [each.measured([turn[place] for turn in turns]) for place, each in enumerate(ready)]
    for rows, of_size in zip(sizes, measured, strict=True):
        report.tell(*figures(rows, of_size))
    for (few_rows, few), (many_rows, many) in itertools.pairwise(zip(sizes, measured, strict=True)):
        report.tell(*growth(few_rows, few, many_rows, many))


if __name__ == "__main__":
    sys.exit(main())
