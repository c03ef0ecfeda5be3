"""CPU time of this thread without the compilation of kernels, which a cold process owes to nobody's rows."""

from __future__ import annotations

import threading
import time

from numba.core import event

_COMPILE = "numba:compile"


class _Compilations(event.Listener):
    """Adds up, per thread, the CPU time between the start and the end of compilations. They may be nested."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def on_start(self, event: object) -> None:
        depth = getattr(self._of_thread, "depth", 0)
        if not depth:
            self._of_thread.began_s = time.thread_time()
        self._of_thread.depth = depth + 1

    def on_end(self, event: object) -> None:
        self._of_thread.depth -= 1
        if not self._of_thread.depth:
            self._of_thread.spent_s = self.spent_s + time.thread_time() - self._of_thread.began_s

    @property
    def spent_s(self) -> float:
        return float(getattr(self._of_thread, "spent_s", 0.0))


_COMPILATIONS = _Compilations()
event.register(_COMPILE, _COMPILATIONS)  # type: ignore[no-untyped-call]


def work_time() -> float:
    """Seconds, as `time.thread_time`, that differ by what was done between two calls apart from compiling kernels."""
    return time.thread_time() - _COMPILATIONS.spent_s
