"""The crash matrices of all stages after ingest, of ingest with rules and of rulers, three cells at a time.

    python -m tests.faults.lifecycle --seeds 10 --only kafka/compact/before_commit

`make faults` runs this file after that of ingest. A long run can be made of several: with `--held FILE`, the names of
cells that hold are added to the file, and cells that are named there are passed over.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import structlog

from tests.faults import backfill, compact, delete, derive, remake, rollup, ruler, settle, sweep
from tests.faults.matrix import BUSES, Cell, Components, Matrix, components

MATRICES: Final[Mapping[str, Matrix]] = {
    each.stage: each
    for each in (
        *(module.MATRIX for module in (delete, sweep, compact, rollup, derive, settle, backfill, remake, ruler)),
        rollup.JOIN_MATRIX,
    )
}


@dataclass(frozen=True)
class _Verdict:
    cell: Cell
    holds: bool
    found: str
    took_s: float

    def __str__(self) -> str:
        return f"{'ok' if self.holds else 'FAILED':6} {self.cell!s:52} {self.found} ({self.took_s:.1f} s)"


#: Set before processes are forked, which find it in their memory.
_shared: Components | None = None


def _judge(cell: Cell) -> _Verdict:
    assert _shared is not None
    started = time.monotonic()
    try:
        found, holds = MATRICES[cell.stage].run_cell(cell, _shared), True
    # Whatever a cell fails of: an error that left the pool would be shown only after all other cells.
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        found, holds = f"{error!r}; again with --first-seed {cell.seed} --seeds 1 --only {cell}", False
    return _Verdict(cell, holds, found, time.monotonic() - started)


def _verdicts(cells: Sequence[Cell], jobs: int, end_s: float) -> Iterator[_Verdict]:
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        futures = [pool.submit(_judge, cell) for cell in cells]
        for future in as_completed(futures):
            yield future.result()
            if time.monotonic() > end_s:
                for each in futures:
                    each.cancel()
                # Those that have begun are finished.
                yield from (each.result() for each in futures if each.running())
                return


def _cells(seeds: range, stages: Sequence[str], only: str, held: Path | None) -> list[Cell]:
    """Seed by seed, so that a run that is cut short has seen every point."""
    done = set(held.read_text().split()) if held is not None and held.exists() else set()
    cells = [
        Cell(matrix.stage, bus, point, seed)
        for seed in seeds
        for bus in BUSES
        for matrix in (MATRICES[stage] for stage in stages)
        for point in matrix.points
    ]
    return [cell for cell in cells if str(cell).startswith(only) and str(cell) not in done]


def main() -> int:
    global _shared
    parser = argparse.ArgumentParser(prog="python -m tests.faults.lifecycle", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="seeds of every point on every bus")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them; 0 is the one with Spark")
    parser.add_argument("--jobs", type=int, default=3, help="cells that run at once; they mostly wait")
    parser.add_argument("--only", default="", help="cells whose name begins with this, as kafka/compact/before_commit")
    parser.add_argument("--stages", nargs="+", choices=MATRICES, default=list(MATRICES), help="whose cells; or all")
    parser.add_argument("--held", type=Path, help="file of cells that hold already")
    parser.add_argument("--for", type=float, default=float("inf"), dest="for_s", help="seconds after which none begins")
    chosen = parser.parse_args()
    cells = _cells(range(chosen.first_seed, chosen.first_seed + chosen.seeds), chosen.stages, chosen.only, chosen.held)
    # What the clean roles tell is of no interest here; a victim's last words are shown when it dies elsewhere.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    held = failed = 0
    began_s = time.monotonic()
    with components(cells) as _shared:
        for verdict in _verdicts(cells, chosen.jobs, began_s + chosen.for_s):
            print(verdict, flush=True)  # noqa: T201
            held, failed = held + verdict.holds, failed + (not verdict.holds)
            if verdict.holds and chosen.held is not None:
                with chosen.held.open("a") as file:
                    print(verdict.cell, file=file)
    left = len(cells) - held - failed
    print(f"{held} cells hold, {failed} do not, {left} not run ({time.monotonic() - began_s:.0f} s)")  # noqa: T201
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
