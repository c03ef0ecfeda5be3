"""`python -m tests.query.traceqltest DIR`: ask every case of a suite of a real lake over HTTP, and say what passed.

The traces of the suite go their real way: raw objects in a bucket, ingest, segments, index, planner, a query worker,
HTTP. With `--url` and `--t0`, a server that has the traces already is asked instead. A case passes with
Tempo's answer, or with the plain reading of the language where the suite recorded a quirk.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lakerunner.model.signals.traces import TRACES
from tests.query.served_lake import served_lake
from tests.query.traceqltest.suite import Suite, cases_of, differences, recent_t0, shown

#: The status of a server that asks for patience, and how often and how long it gets some.
_BUSY, _PATIENCE, _PAUSE_S = 503, 10, 2.0


def difference(suite: Suite, url: str, case: dict[str, Any], t0_s: int) -> str | None:
    """None when the server's answer is the recorded one or its plain alternative."""
    tq = suite.module("tq")
    try:
        for _ in range(_PATIENCE):
            status, kind, body = tq.send(url, case, t0_s)
            if status != _BUSY:
                break
            time.sleep(_PAUSE_S)
        got = tq.canon(case, status, kind, body, t0_s)
        found = tq.compare(case, got)
    except Exception as error:  # noqa: BLE001 - an answer that cannot be read fails its case, not the run
        return f"{type(error).__name__}: {error}"
    if not found or tq.agrees_with_alt(case, got):
        return None
    is_quantile = case.get("loose") == "quantile" and got.get("status") == 200 and "series" in case["expect"]
    if is_quantile and suite.module("check").quantile_close(case, got):
        return None
    message = f" (answered {got['error']})" if got.get("error") else ""
    return "\n    ".join(found)[:2_000] + message


def run(suite: Suite, url: str, paths: Sequence[Path], t0_s: int, only: str = "") -> int:
    excused = differences()
    passed = failed = 0
    for path in paths:
        chosen = [case for case in cases_of(path) if only in case["id"]]
        cases = [case for case in chosen if case["id"] not in excused]
        failures = [(case, reason) for case in cases if (reason := difference(suite, url, case, t0_s)) is not None]
        if not cases:
            continue
        left_out = len(chosen) - len(cases)
        note = f", {left_out} differ on purpose" if left_out else ""
        sys.stdout.write(f"{path.name}: {len(cases) - len(failures)}/{len(cases)}{note}\n")
        for case, reason in failures:
            sys.stdout.write(f"  {case['id']}: {shown(case)}\n    {reason}\n")
        sys.stdout.flush()
        passed += len(cases) - len(failures)
        failed += len(failures)
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path, help="the folder of a suite")
    parser.add_argument("topics", nargs="*", help="files of cases to ask; all without one")
    parser.add_argument("--url", default="", help="a server that has the traces already")
    parser.add_argument("--t0", type=int, default=0, help="the time in seconds from which the server has them")
    parser.add_argument("--only", default="", help="only cases whose id contains this")
    args = parser.parse_args(arguments)
    suite = Suite(args.suite)
    paths = [path for path in suite.topics() if not args.topics or path.stem in args.topics]
    if not paths:
        parser.error(f"there are no cases in {args.suite}")
    # Names of spans may hold anything.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if args.url:
        return run(suite, args.url, paths, args.t0, args.only)
    t0_s = recent_t0()
    with served_lake(suite.requests(t0_s), TRACES, items=3) as url:
        return run(suite, url, paths, t0_s, args.only)


if __name__ == "__main__":
    sys.exit(main())
