"""What a process takes of the machine's memory, and giving back to the system what it does not use."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from pathlib import Path

import pyarrow as pa

_PROC = Path("/proc")
#: Memory of the process's own. Pages of mapped files count as resident too, but the system takes them back by itself.
_OWN = ("RssAnon:", "RssShmem:")
_RESIDENT = ("VmRSS:",)
#: `mallopt`'s number for the most arenas that malloc makes.
_M_ARENA_MAX = -8


def own_bytes(pid: int | None = None) -> int:
    """Resident memory of a process and all that it started, mapped files apart; 0 where the system does not tell."""
    return sum(_status_bytes(one, _OWN) for one in _tree(pid or os.getpid()))


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory (RSS) of a process and all that it started."""
    return sum(_status_bytes(one, _RESIDENT) for one in _tree(pid or os.getpid()))


def release_memory() -> None:
    """Hand freed memory to the system: that of Python's garbage, of Arrow's pool and of the C library."""
    gc.collect()
    trim()


def trim() -> None:
    """The same but for garbage: a few milliseconds, and nobody is held up by it."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # Only glibc has it.
        ctypes.CDLL(None).malloc_trim(0)


def limit_malloc_arenas(count: int = 2) -> None:
    """Let threads share a few of malloc's arenas. Each keeps what was freed in it; one a thread adds up to drift.

    To be called before threads are made.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, count)


def _tree(pid: int) -> list[int]:
    found, pending = [], [pid]
    while pending:
        one = pending.pop()
        found.append(one)
        with contextlib.suppress(OSError):  # It ended while we looked.
            for task in (_PROC / str(one) / "task").iterdir():
                pending += map(int, (task / "children").read_text().split())
    return found


def _status_bytes(pid: int, names: tuple[str, ...]) -> int:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    # As "RssAnon:     1234 kB".
    return sum(1_024 * int(line.split()[1]) for line in lines if line.startswith(names))
