"""Counts the verdicts of a run, and prints each disagreement as it is found."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    seed: int
    kinds: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    _started_s: float = field(default_factory=time.monotonic)

    def add(self, number: int, kind: str, disagreement: object | None) -> None:
        """The verdict about one query; `disagreement` is None where both agree."""
        self.kinds[kind] += 1
        if disagreement is not None:
            self.failed += 1
            sys.stdout.write(f"--seed {self.seed} --only {number}\n  {disagreement}\n")
            sys.stdout.flush()

    def finish(self, compared: str) -> int:
        """Print the sums; the exit code of the run."""
        elapsed_s = time.monotonic() - self._started_s
        sys.stdout.write(", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common()))
        sys.stdout.write(f"; {compared} compared in {elapsed_s:.0f} s\n")
        sys.stdout.write(f"{self.kinds.total() - self.failed} passed, {self.failed} failed (seed {self.seed})\n")
        return 1 if self.failed else 0
