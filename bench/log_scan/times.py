"""CPU and elapsed time of this process for a call, the best of several."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    cpu_ms: float
    wall_ms: float

    def named(self) -> Iterator[tuple[str, float]]:
        yield "cpu", self.cpu_ms
        yield "wall", self.wall_ms


def times_of(call: Callable[[], int]) -> Times:
    cpu, began = time.process_time(), time.perf_counter()
    call()
    return Times((time.process_time() - cpu) * 1e3, (time.perf_counter() - began) * 1e3)


def best(runs: Iterable[Times]) -> Times:
    """The least CPU time and the least elapsed time of some runs."""
    found = list(runs)
    return Times(min(each.cpu_ms for each in found), min(each.wall_ms for each in found))
