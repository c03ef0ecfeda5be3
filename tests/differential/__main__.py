"""`python -m tests.differential [--count N] [--seed N]`: random expressions to Prometheus and to us."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.components.peers import VARIABLE, find_peer
from tests.differential.comparing import Both, question
from tests.differential.dataset import make_dataset, memory_source
from tests.differential.peer import running_prometheus
from tests.query.engine import Engine


def main() -> int:
    options = _options()
    binary = find_peer("prometheus")
    if binary is None:
        sys.stderr.write(f"cannot compare: no `prometheus` on the PATH or in the folder that {VARIABLE} names\n")
        return 2
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    numbers = range(options.count) if options.only is None else [options.only]
    series = make_dataset(seed)
    kinds, failed, started_s = Counter[str](), 0, time.monotonic()
    with running_prometheus(binary) as peer:
        peer.load(series)
        both = Both(peer, Engine(memory_source(series)))
        for number in numbers:
            verdict = both.ask(question(seed, number))
            kinds[verdict.kind] += 1
            if verdict.disagreement is not None:
                failed += 1
                sys.stdout.write(f"--seed {seed} --only {number}\n  {verdict.disagreement}\n")
                sys.stdout.flush()
    sys.stdout.write(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    sys.stdout.write(f"; {both.values:,} values compared in {time.monotonic() - started_s:.0f} s\n")
    sys.stdout.write(f"{len(numbers) - failed} passed, {failed} failed (seed {seed})\n")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="how many expressions (default 5000)")
    parser.add_argument("--seed", type=int, help="of samples and expressions; without it, another every time")
    parser.add_argument("--only", type=int, help="the number of one expression of a run, to ask it again")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
