"""A fixed share of a core for some processes and all that they start, by a control group of the kernel."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_PERIOD_US = 100_000
#: Where the controller of CPU time may be: version 1, and version 2.
_ONE, _TWO = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


class CpuShare:
    """Usable as a context manager. Unlimited until `limit` is called, so that starting takes no longer."""

    def __init__(self, name: str) -> None:
        root = _ONE if (_ONE / "cpu.cfs_quota_us").exists() or not (_TWO / "cpu.max").exists() else _TWO
        self._is_one = root == _ONE
        self._folder = root / f"lakerunner-bench-{os.getpid()}-{name}"

    def __enter__(self) -> CpuShare:
        try:
            self._folder.mkdir()
        except OSError as reason:
            raise SystemExit(f"cannot limit CPU time: {reason}: be root, with a writable /sys/fs/cgroup") from None
        return self

    def __exit__(self, *_: object) -> None:
        for _attempt in range(100):
            with suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)

    def take(self, pid: int) -> None:
        """Move a process here; what it starts from now on is here too."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def limit(self, cores: float) -> None:
        quota = str(round(cores * _PERIOD_US))
        if self._is_one:
            (self._folder / "cpu.cfs_quota_us").write_text(quota)
        else:
            (self._folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")

    def pids(self) -> list[int]:
        return [int(line) for line in (self._folder / "cgroup.procs").read_text().split()]
