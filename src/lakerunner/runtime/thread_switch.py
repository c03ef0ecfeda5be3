"""How threads of one process share the interpreter."""

from __future__ import annotations

import sys

#: How long a thread keeps the interpreter while others want it. With Python's own 5 ms, each of a small query's
#: few hand-overs waits that long behind a large one (docs/decisions/0007-queries-in-threads.md has the figures).
_SWITCH_S = 0.000_5


def switch_threads_often() -> None:
    """For processes in which small queries run beside large ones."""
    sys.setswitchinterval(_SWITCH_S)
