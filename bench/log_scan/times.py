"""CPU and elapsed time of this process for a call, the best of several."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    cpu_ms: float
    wall_ms: float

    def named(self) -> Iterator[tuple[str, float]]:
        yield "cpu", self.cpu_ms
        yield "wall", self.wall_ms


def best(call: Callable[[], int], runs: int, warming: int) -> Times:
    """The best of the runs after some to warm up."""
    for _ in range(warming):
        call()
    spent, elapsed = [], []
    for _ in range(runs):
        cpu, began = time.process_time(), time.perf_counter()
        call()
        spent.append(time.process_time() - cpu)
        elapsed.append(time.perf_counter() - began)
    return Times(min(spent) * 1e3, min(elapsed) * 1e3)
