"""Measure the memory of a process, and return unused memory to the operating system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
from pathlib import Path

import pyarrow as pa

_PROC = Path("/proc")
#: Memory that only the process can free. Pages of mapped files are resident too, but the kernel reclaims them.
_OWN = ("RssAnon:", "RssShmem:")
_RESIDENT = ("VmRSS:",)
#: `mallopt`'s parameter for the maximum number of malloc arenas.
_M_ARENA_MAX = -8


def own_bytes(pid: int | None = None) -> int:
    """Return resident memory without mapped files, of a process and its descendants; 0 where `/proc` is missing."""
    return sum(_status_bytes(one, _OWN) for one in _tree(pid or os.getpid()))


def resident_bytes(pid: int | None = None) -> int:
    """Return resident memory (RSS) of a process and its descendants."""
    return sum(_status_bytes(one, _RESIDENT) for one in _tree(pid or os.getpid()))


def release_memory() -> None:
    """Return freed memory to the system: collect Python's garbage, then trim Arrow's pool and the C library's heap."""
    gc.collect()
    trim()


def trim() -> None:
    """Trim without collecting garbage. Takes a few milliseconds and does not stop other threads."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # Only glibc has it.
        ctypes.CDLL(None).malloc_trim(0)


def limit_malloc_arenas(count: int = 2) -> None:
    """Make threads share a few malloc arenas.

    Each arena keeps the memory freed in it, so with one arena per thread the process grows slowly. Call this before
    starting threads.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, count)


def is_address_space_limited() -> bool:
    """Whether `ulimit -v` limits what this process may reserve. Containers limit memory in use, not address space."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _tree(pid: int) -> list[int]:
    found, pending = [], [pid]
    while pending:
        one = pending.pop()
        found.append(one)
        with contextlib.suppress(OSError):  # The process has ended meanwhile.
            for task in (_PROC / str(one) / "task").iterdir():
                pending += map(int, (task / "children").read_text().split())
    return found


def _status_bytes(pid: int, names: tuple[str, ...]) -> int:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    # A line reads "RssAnon:     1234 kB".
    return sum(1_024 * int(line.split()[1]) for line in lines if line.startswith(names))
