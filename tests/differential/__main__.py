"""`python -m tests.differential [--count N] [--seed N]`: random expressions to Prometheus and to us."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from lakerunner.query.promql.engine import Engine
from tests.differential.comparing import Both, Question, Verdict, question
from tests.differential.dataset import make_dataset, memory_source
from tests.differential.peer import PEERS, find_prometheus, running_prometheus


def main() -> int:
    options = _options()
    binary = find_prometheus()
    if binary is None:
        sys.stderr.write(f"cannot compare: no `prometheus` on the PATH or in the folder that {PEERS} names\n")
        return 2
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    numbers = range(options.count) if options.only is None else [options.only]
    series = make_dataset(seed)
    kinds, failed, lonely = Counter[str](), 0, 0
    with running_prometheus(binary) as peer:
        peer.load(series)
        both = Both(peer, Engine(memory_source(series)))
        for number in numbers:
            asked = question(seed, number)
            verdict = both.ask(asked)
            kinds[verdict.kind] += 1
            failed += verdict.disagreement is not None
            lonely += bool(verdict.only_peer or verdict.only_own)
            if text := _shown(verdict, asked, options.notes):
                sys.stdout.write(f"--seed {seed} --only {number}\n  {text}\n")
                sys.stdout.flush()
    sys.stdout.write(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    sys.stdout.write(f"; messages of one side alone at {lonely} (--notes shows them)\n")
    sys.stdout.write(f"{len(numbers) - failed} passed, {failed} failed (seed {seed})\n")
    return 1 if failed else 0


def _shown(verdict: Verdict, asked: Question, notes: bool) -> str:
    if verdict.disagreement is not None:
        return str(verdict.disagreement)
    if not notes or not (verdict.only_peer or verdict.only_own):
        return ""
    lines = [f"only Prometheus says {text}" for text in sorted(verdict.only_peer)]
    lines += [f"only we say {text}" for text in sorted(verdict.only_own)]
    return "\n    ".join([str(asked), *lines])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="how many expressions (default 5000)")
    parser.add_argument("--seed", type=int, help="of samples and expressions; without it, another every time")
    parser.add_argument("--only", type=int, help="the number of one expression of a run, to ask it again")
    parser.add_argument("--notes", action="store_true", help="show warnings and infos that only one side gives")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
