"""`python -m tests.query.promqltest DIR`: run the scripts of a folder and say what passed."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.query.promqltest.runner import run_script


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).exists():
        sys.stderr.write("usage: python -m tests.query.promqltest DIR|FILE\n")
        return 2
    # Label values may hold bytes that are no UTF-8.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    given = Path(arguments[0])
    passed = failed = 0
    for path in sorted(given.glob("*.test")) if given.is_dir() else [given]:
        outcomes = list(run_script(path))
        failures = [outcome for outcome in outcomes if outcome.failure is not None]
        sys.stdout.write(f"{path.name}: {len(outcomes) - len(failures)}/{len(outcomes)}\n")
        for outcome in failures:
            sys.stdout.write(f"  {path}:{outcome.line}: {outcome.expr}\n    {outcome.failure}\n")
        passed += len(outcomes) - len(failures)
        failed += len(failures)
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
