"""`python -m tests.query.promqltest DIR`: run the scripts of a folder through a real lake, and say what passed.

Every loaded series is written as Parquet segments, registered in a real index, planned, and read by a query worker over
Arrow Flight. With `--memory` the engine alone is run, over series in memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.worker.role import QueryWorker
from tests.components.postgres import PostgresServer
from tests.query.lake_of_series import lake_of_series
from tests.query.promqltest.runner import run_script

#: Beyond all samples of the scripts: one lookup serves all selectors of a script's part.
_LATEST_MS = 1 << 42

Factory = Callable[[MemorySource], SeriesSource]


@contextmanager
def through_a_lake() -> Iterator[Factory]:
    with tempfile.TemporaryDirectory(prefix="lakerunner-promqltest-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder) / "server")
        server.start()
        with lake_of_series(Path(folder) / "lake", server.new_database()) as lake:
            # Its note in the data folder is how the lake finds it.
            worker = QueryWorker(lake.settings)
            worker.start()

            def factory(loaded: MemorySource) -> SeriesSource:
                source = lake.lake.query(lake.write(loaded))
                source.prepare([Leaf.of_samples((), 0, _LATEST_MS)])
                return source

            try:
                yield factory
            finally:
                worker.close()
        server.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", type=Path, help="a folder of *.test files, or one of them")
    parser.add_argument("--memory", action="store_true", help="the engine alone, without a lake")
    args = parser.parse_args(arguments)
    if not args.scripts.exists():
        parser.error(f"there is no {args.scripts}")
    # Label values may hold bytes that are no UTF-8.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if args.memory:
        return run(args.scripts, lambda loaded: loaded)
    with through_a_lake() as factory:
        return run(args.scripts, factory)


def run(given: Path, factory: Factory) -> int:
    passed = failed = 0
    for path in sorted(given.glob("*.test")) if given.is_dir() else [given]:
        outcomes = list(run_script(path, factory))
        failures = [outcome for outcome in outcomes if outcome.failure is not None]
        sys.stdout.write(f"{path.name}: {len(outcomes) - len(failures)}/{len(outcomes)}\n")
        for outcome in failures:
            sys.stdout.write(f"  {path}:{outcome.line}: {outcome.expr}\n    {outcome.failure}\n")
        passed += len(outcomes) - len(failures)
        failed += len(failures)
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
