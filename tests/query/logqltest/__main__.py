"""`python -m tests.query.logqltest DIR`: ask every case of a suite of a real lake over HTTP, and say what passed.

The records of the suite are written as raw objects to a bucket, ingested to segments, registered in a real index,
planned, and read by a query worker over Arrow Flight; the API is asked over HTTP. With `--url`, a server that has the
records already is asked instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lakerunner.model.signals.logs import LOGS
from tests.query.logqltest.asking import Asker
from tests.query.logqltest.compare import query_difference
from tests.query.logqltest.shapes import endpoint_difference
from tests.query.logqltest.suite import Case, Suite, cases_of, differences
from tests.query.served_lake import served_lake


@dataclass(frozen=True, slots=True)
class Failure:
    case: Case
    reason: str


@dataclass(frozen=True, slots=True)
class TopicResult:
    name: str
    asked: int
    failures: Sequence[Failure]
    #: Cases that differ where the suite recorded a quirk, and those that differ on purpose: neither counts.
    quirks: int
    on_purpose: int

    @property
    def passed(self) -> int:
        return self.asked - len(self.failures)


def run_topic(asker: Asker, path: Path, *, quirks: bool = False, only: str = "") -> TopicResult:
    excused = differences()
    failures, odd, on_purpose = [], 0, 0
    cases = [case for case in cases_of(path) if only in case.case_id]
    for case in cases:
        if case.case_id in excused or case.path in excused:
            on_purpose += 1
            continue
        reason = difference(asker, case)
        if reason is None:
            continue
        if case.is_quirk and not quirks:
            odd += 1
        else:
            failures.append(Failure(case, reason))
    return TopicResult(path.stem, len(cases) - on_purpose, failures, odd, on_purpose)


def difference(asker: Asker, case: Case) -> str | None:
    """None when the server gives the recorded answer, in both encodings of labels where there are two."""
    try:
        if not case.is_query:
            return endpoint_difference(case, asker.ask(case))
        reason = query_difference(case, asker.ask(case))
        if reason is None and "expect_categorized" in case.recorded:
            reason = query_difference(case, asker.ask(case, categorized=True), "expect_categorized")
            return None if reason is None else f"categorized: {reason}"
        return reason
    except Exception as error:  # noqa: BLE001 - an answer that cannot be read fails its case, not the run
        return f"{type(error).__name__}: {error}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path, help="the folder of a suite")
    parser.add_argument("topics", nargs="*", help="topics to ask; all without one")
    parser.add_argument("--url", default="", help="a server that has the records already")
    parser.add_argument("--only", default="", help="only cases whose id contains this")
    parser.add_argument("--quirks", action="store_true", help="count quirks too")
    args = parser.parse_args(arguments)
    suite = Suite(args.suite)
    paths = [path for path in suite.topics() if not args.topics or path.stem in args.topics]
    if not paths:
        parser.error(f"there are no cases in {args.suite}")
    # Lines may hold anything.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if args.url:
        return run(args.url, paths, quirks=args.quirks, only=args.only)
    with served_lake(suite.requests, LOGS) as url:
        return run(url, paths, quirks=args.quirks, only=args.only)


def run(url: str, paths: Sequence[Path], *, quirks: bool, only: str = "") -> int:
    asker = Asker(url)
    passed = failed = 0
    for path in paths:
        result = run_topic(asker, path, quirks=quirks, only=only)
        if not result.asked and not result.on_purpose:
            continue
        notes = [f"{number} {what}" for number, what in _uncounted(result) if number]
        sys.stdout.write(f"{path.name}: {result.passed}/{result.asked}{''.join(f', {note}' for note in notes)}\n")
        for failure in result.failures:
            sys.stdout.write(f"  {failure.case.case_id}: {failure.case.shown()}\n    {failure.reason}\n")
        sys.stdout.flush()
        passed += result.passed
        failed += len(result.failures)
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


def _uncounted(result: TopicResult) -> tuple[tuple[int, str], ...]:
    return (result.quirks, "differ where a quirk was recorded"), (result.on_purpose, "differ on purpose")


if __name__ == "__main__":
    sys.exit(main())
