"""How often Python switches between the threads of a process."""

from __future__ import annotations

import sys

#: How long a thread may hold the interpreter lock while others wait for it. With Python's default of 5 ms, a small
#: query waits that long behind a large one at each switch (figures: docs/decisions/0007-queries-in-threads.md).
_SWITCH_S = 0.000_5


def switch_threads_often() -> None:
    """Shorten the switch interval, for processes in which small queries run beside large ones."""
    sys.setswitchinterval(_SWITCH_S)
