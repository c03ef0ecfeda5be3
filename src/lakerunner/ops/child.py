"""A supervised process: start it, watch it, restart it with back-off, and stop it."""

from __future__ import annotations

import collections
import contextlib
import logging
import logging.handlers
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from lakerunner.ops.fork_server import Process
from lakerunner.runtime.exit_code import EXIT_RECYCLED
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.telemetry import log

_LOG_BYTES = 10 * 1024 * 1024
_LOG_FILES = 3
#: A child that ran this long counts as healthy again. Back-off is for a child that dies again and again while it
#: starts; one that worked in between is needed, whatever killed it.
HEALTHY_S = 20.0
#: A child that asks to be recycled sooner than this after its start would loop forever, so that counts as a crash.
SETTLED_S = 5.0


class Child:
    """A process that should be running until `terminate` is called."""

    def __init__(self, name: str, spawn: Callable[[], Process], backoff: Backoff) -> None:
        self.name = name
        self._spawn = spawn
        self._backoff = backoff
        self._process: Process | None = None
        self._started_at = 0.0
        self._crashes = 0
        self._restart_at: float | None = None
        self.restarts = 0
        #: How often the child exited on purpose to be restarted with fresh memory.
        self.recycles = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        self._process = self._spawn()
        self._started_at = time.monotonic()
        self._restart_at = None

    def watch(self) -> int | None:
        """Restart the child if a restart is due. Return the exit code of a crash, once per crash."""
        now = time.monotonic()
        if self._restart_at is not None:
            if now >= self._restart_at:
                self.restarts += 1
                self.start()
            return None
        if self._process is None or (code := self._process.poll()) is None:
            return None
        if code == EXIT_RECYCLED and now - self._started_at > SETTLED_S:
            self.recycles += 1
            self.start()
            log().info("child recycled", child=self.name)
            return None
        if now - self._started_at > HEALTHY_S:
            self._crashes = 0
        self._crashes += 1
        # The first restart is immediate: users should not notice a single crash. Later ones are spaced from start to
        # start, so the time that the child has worked counts as waited.
        spacing_s = 0.0 if self._crashes == 1 else self._backoff.ceiling_s(self._crashes - 1)
        delay_s = max(0.0, self._started_at + spacing_s - now)
        self._restart_at = now + delay_s
        log().warning("child died", child=self.name, exit_code=code, restart_in_s=round(delay_s, 2))
        return code

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def terminate(self) -> None:
        self._restart_at = None
        if self._process is not None and self.alive():
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> bool:
        """Return whether the child ended within the timeout."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill the child and all processes it started: each child leads its own process group."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class LogPump:
    """Copies a child's output to a rotating file, and keeps its last lines to explain a crash."""

    def __init__(self, path: Path) -> None:
        self._last: collections.deque[str] = collections.deque(maxlen=20)
        self._writer = logging.Logger(path.stem, logging.INFO)
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES)
        handler.setFormatter(logging.Formatter("%(message)s"))
        self._writer.addHandler(handler)

    def pipe(self) -> int:
        """Return a descriptor for a new process to write to. The caller closes it when the process has it."""
        read, write = os.pipe()
        threading.Thread(target=self._copy, args=(read,), name="log-pump", daemon=True).start()
        return write

    def _copy(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as stream:
            for line in stream:
                text = line.decode(errors="replace").rstrip("\n")
                self._last.append(text)
                self._writer.info(text)

    def last_error(self) -> str:
        """Return the child's last error record, or its last line."""
        for line in reversed(self._last):
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(record, dict) and record.get("level") == "error":
                return str(record.get("error") or record.get("event"))
        return self._last[-1] if self._last else ""
