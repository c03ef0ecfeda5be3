"""`python -m tests.differential [--language NAME] [--count N] [--seed N]`: random queries to a real peer and to us."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.differential.logql.run import run as run_logql
from tests.differential.promql.run import run as run_promql
from tests.differential.traceql.run import run as run_traceql

_LANGUAGES = ("promql", "logql", "traceql")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--language", choices=_LANGUAGES, default="promql", help="the language (default promql)")
    parser.add_argument("--count", type=int, default=5000, help="how many queries (default 5000)")
    parser.add_argument("--seed", type=int, help="of data and queries; without it, another every time")
    parser.add_argument("--only", type=int, help="the number of one query of a run, to ask it again")
    parser.add_argument("--suite", type=Path, help="logql: recombine its queries; traceql: its traces")
    parser.add_argument("--topic", default="", help="with --suite: begin with queries of topics with this name")
    options = parser.parse_args()
    if options.language == "logql":
        return run_logql(options.count, options.seed, options.only, options.suite, options.topic)
    if options.language == "traceql":
        return run_traceql(options.count, options.seed, options.only, options.suite)
    return run_promql(options.count, options.seed, options.only)


if __name__ == "__main__":
    sys.exit(main())
