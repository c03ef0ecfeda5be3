"""Lets several processes add compiled kernels to numba's cache at the same time.

numba keeps what it compiled in files, and a list of them per function. It counts to find the name of the next file,
writes the list before the file, and takes no lock. Of two processes that compile a function for different types at the
same time, one could then load the other's code: for arguments that lie in memory otherwise.
"""

from __future__ import annotations

import fcntl
import itertools
from collections.abc import Hashable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Beside the files, for as long as one is added.
_LOCK = ".kernels.lock"


def share_kernel_cache() -> None:
    """Let this process and its forks add one file at a time, each complete before the list has it."""
    from numba.core.caching import IndexDataCacheFile

    IndexDataCacheFile.save = _save  # type: ignore[method-assign]


def _save(self: Any, key: Hashable, data: Any) -> None:
    # A kernel that cannot be stored, on a full disk say, is compiled: whoever waits for it can go on.
    with suppress(OSError), (Path(self._cache_path) / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listed = self._load_index()
        names: Iterator[str] = map(self._data_name, itertools.count(1))
        taken = set(listed.values())
        name = listed.get(key) or next(name for name in names if name not in taken)
        self._save_data(name, data)
        if key not in listed:
            self._save_index({**listed, key: name})
