"""Compile the kernels of all roles, in a process per core: `python -m lakerunner.ops.compile_kernels`.

It is a process of its own because it forks, which one with threads must not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from lakerunner.ops.roles import ROLES, RoleEntry
from lakerunner.runtime.kernels import Share, begin_compiling, compile_kernels, end_with_parent, give_way

#: Each process takes 250 MB.
_MOST_PROCESSES = 8


def kernels_of(roles: Iterable[RoleEntry]) -> list[Share]:
    """The kernels of some roles, each once: first what each role needs first, then what each needs next."""
    turns = zip_longest(*(entry.load().kernels() for entry in roles))
    return list(dict.fromkeys(share for turn in turns for share in turn if share is not None))


def compile_behind(shares: Sequence[Share]) -> int | None:
    """Compile in processes that give way to others and end with this one. None if somebody else does, or nobody can."""
    lock = begin_compiling() if shares else None
    if lock is None:
        return None
    with lock:
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            give_way()
            os._exit(not compile_kernels(shares, _processes()))
        return pid


def _processes() -> int:
    return min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)


def main() -> int:
    end_with_parent()
    return 0 if compile_kernels(kernels_of(ROLES), _processes()) else 1


if __name__ == "__main__":
    sys.exit(main())
