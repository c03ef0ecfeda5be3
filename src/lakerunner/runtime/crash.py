"""Crash points: named places where a test may kill the process, as a power cut would. Inert unless armed."""

from __future__ import annotations

import os
import signal

VARIABLE = "LAKERUNNER_CRASH_POINT"


def _armed() -> tuple[str, int]:
    """Return the armed point and which pass through it crashes, from `name` or `name:3`."""
    name, _, passing = os.environ.get(VARIABLE, "").partition(":")
    return name, int(passing or 1)


_NAME, _LEFT = _armed()
#: What happens at the point. A test may suspend the process instead, as if its host had vanished.
_SIGNAL = signal.SIGKILL


def crash_point(name: str) -> None:
    """Kill the process with SIGKILL if the environment armed this point: no cleanup, no flush."""
    global _LEFT
    if name != _NAME:
        return
    _LEFT -= 1
    if _LEFT == 0:
        os.kill(os.getpid(), _SIGNAL)
