"""The kernels of this installation: whether they are compiled, compiling them in several processes, and loading them.

Kernels come in *shares*: functions that each run some kernels over a little data, which loads them, or compiles them
where that was never done. Shares depend on nothing before them. While one process compiles, others start without
kernels and load them afterwards; what they need meanwhile, they compile themselves.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from lakerunner.runtime.kernel_cache import share_kernel_cache
from lakerunner.runtime.surroundings import MARK
from lakerunner.runtime.telemetry import log

Share = Callable[[], object]

_PACKAGE = Path(__file__).resolve().parents[1]
_LOCK = "kernels.lock"
#: prctl(2): be sent a signal when the parent ends.
_PR_SET_PDEATHSIG = 1
#: Compiling leaves the cores to whoever wants them.
_NICE = 10
_POLL_S = 0.5

_loaded: set[Share] = set()
_loading = threading.Lock()


def kernel_folder() -> Path:
    """Where the mark and the lock are. numba has its files below, or beside each source."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or _PACKAGE / "__pycache__")


def are_compiled(shares: Sequence[Share]) -> bool:
    """Whether somebody compiled at least so many shares, of these sources and for this processor."""
    try:
        count, _, stamp = (kernel_folder() / MARK).read_text().partition("\n")
        # Those that it names: a source that is new is compiled when it is loaded, and looking for it would take longer.
        sources = [Path(line.split(" ", 2)[2]) for line in stamp.splitlines()[1:]]
        return int(count) >= len(shares) and stamp == _stamp(sources)
    except (OSError, IndexError, ValueError):
        return False


def begin_compiling() -> IO[str] | None:
    """Take the lock of compiling, held until the returned file is closed here and in all forks. None if it is taken."""
    try:
        kernel_folder().mkdir(parents=True, exist_ok=True)
        lock = (kernel_folder() / _LOCK).open("a")
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def are_being_compiled() -> bool:
    try:
        with (kernel_folder() / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def load_kernels(shares: Sequence[Share]) -> None:
    """Load shares, each once in a process and its forks; if they are being compiled just now, in the background."""
    if _loaded.issuperset(shares):
        return
    if are_being_compiled():
        log().info("kernels are being compiled: queries take longer until that is done")
        threading.Thread(target=_load_when_compiled, args=(shares,), name="load-kernels", daemon=True).start()
    else:
        load_at_once(shares)


def _load_when_compiled(shares: Sequence[Share]) -> None:
    while are_being_compiled():
        time.sleep(_POLL_S)
    load_at_once(shares)


def load_at_once(shares: Sequence[Share]) -> None:
    share_kernel_cache()
    with _loading:
        missing = [share for share in shares if share not in _loaded]
        began_s = time.monotonic()
        for share in missing:
            share()
            _loaded.add(share)
    log().info("kernels loaded", shares=len(missing), seconds=round(time.monotonic() - began_s, 2))


def compile_kernels(shares: Sequence[Share], processes: int) -> bool:
    """Compile all shares in forks of this process, and leave the mark. Return whether that worked.

    This process must have no threads. Whoever has nothing to do takes the next share, from a pipe.
    """
    share_kernel_cache()
    stamp = _stamp(_sources())
    read, write = os.pipe()
    os.write(write, bytes(range(len(shares))))
    os.close(write)
    workers = []
    for _ in range(max(1, min(processes, len(shares)))):
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            os._exit(_work(shares, read))
        workers.append(pid)
    os.close(read)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
    if not any(codes):
        mark = kernel_folder() / MARK
        part = mark.with_name(f"{MARK}.{os.getpid()}")
        with suppress(OSError):
            part.write_text(f"{len(shares)}\n{stamp}")
            part.replace(mark)
    return not any(codes)


def _work(shares: Sequence[Share], read: int) -> int:
    try:
        while taken := os.read(read, 1):
            shares[taken[0]]()
    except BaseException:  # noqa: BLE001  (the process ends here)
        traceback.print_exc()
        return 1
    return 0


def end_with_parent() -> None:
    """Let the kernel kill this process when the one that forked it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def give_way() -> None:
    os.nice(_NICE)


def _sources() -> list[Path]:
    return sorted(path for path in _PACKAGE.rglob("*.py") if b"@njit(" in path.read_bytes())


def _stamp(sources: Sequence[Path]) -> str:
    """What kernels are compiled for, and of which sources: a line for each, its name last."""
    import numba
    from numba.core.registry import cpu_target

    made_for = f"numba {numba.__version__} {cpu_target.target_context.codegen().magic_tuple()}"
    stats = [(path, path.stat()) for path in sources]
    return "\n".join([made_for, *(f"{found.st_size} {found.st_mtime_ns} {path}" for path, found in stats)])
