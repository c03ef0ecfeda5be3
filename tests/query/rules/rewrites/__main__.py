"""`python -m tests.query.rules.rewrites --count N`: rewritten answers equal raw ones, over random rules and data."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from lakerunner.query.rules.rewriter import Rewriter
from tests.query.rules.rewrites.small_lake import SmallLake
from tests.query.rules.rewrites.trial import QUERIES_PER_LAKE, trials

#: Objects of a lake are in memory where the system has a folder for that.
_MEMORY = Path("/dev/shm")
_SHOWN = 20


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.query.rules.rewrites", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many triples of rules, query and data")
    parser.add_argument("--seed", type=int, help="of the first lake; without it, another every time")
    parser.add_argument("--refusals", action="store_true", help="count the sentences of refusals")
    options = parser.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    kinds: Counter[str] = Counter()
    sentences: Counter[str] = Counter()
    failed = asked = 0
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="lakerunner-rewrites-", dir=_MEMORY if _MEMORY.is_dir() else None))
    _say(f"seed {seed}")
    try:
        while asked < options.count:
            lake = SmallLake(folder / str(seed))
            queries = min(QUERIES_PER_LAKE, options.count - asked)
            for outcome in trials(seed, lake, Rewriter(), queries):
                asked += 1
                kinds[outcome.kind] += 1
                sentences.update(sentence.partition(": ")[2] for sentence in outcome.refusals)
                if outcome.difference:
                    failed += 1
                    if failed <= _SHOWN:
                        _say(f"seed {seed}: {outcome.text}\n  {outcome.difference}")
            lake.close()
            shutil.rmtree(folder / str(seed), ignore_errors=True)
            seed += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.refusals:
        for sentence, number in sentences.most_common(40):
            _say(f"{number:6} {sentence}")
    shares = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    _say(f"{shares}; {time.monotonic() - started:.0f} s")
    _say(f"{asked - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
