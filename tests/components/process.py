"""A process that a test starts, waits for, and always stops."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

#: Log lines shown when a process dies or does not become ready.
_TAIL_LINES = 40
_POLL_S = 0.05


class ComponentFailed(Exception):
    """A component did not start or died; the message ends with the tail of its log."""


#: Below the ports that Linux gives to outgoing connections: one of these may take a port while its server restarts.
_PORTS = range(15_000, 32_000)
#: Tests seed the usual generator, and all processes of a run would draw the same ports.
_RANDOM = random.SystemRandom()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now. If another process takes it first, the component dies and its log is shown."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = _RANDOM.choice(_PORTS)
            probe.bind((host, port))
            return port


class RunningProcess:
    """A process in its own session, so that its children end with it.

    Usable as a context manager: leaving it stops the process.
    """

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._name = Path(str(process.args[0])).name if isinstance(process.args, (list, tuple)) else "process"
        self.log_path = log_path

    @classmethod
    def start(
        cls,
        argv: Sequence[str | Path],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> RunningProcess:
        """Start the process and append its output to the log. `env` is added to the environment of the tests."""
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )
        return cls(process, log_path)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.poll()

    def wait_for_port(self, host: str, port: int, timeout_s: float = 30.0) -> None:
        """Return once the port accepts connections; fail at once if the process dies before that."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self.returncode is not None:
                raise ComponentFailed(
                    f"{self._name} ended with {self.returncode} before port {port} answered\n{self.tail()}"
                )
            try:
                socket.create_connection((host, port), timeout=1.0).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise ComponentFailed(
                        f"{self._name} did not answer on port {port} within {timeout_s:g} s\n{self.tail()}"
                    ) from None
            time.sleep(_POLL_S)

    def stop(self, timeout_s: float = 10.0) -> int:
        """Terminate the process; kill it after the timeout. Return its exit code. Safe to call again."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        # Also after a clean exit: surviving children would hold its port.
        self._signal(signal.SIGKILL)
        return self._process.wait()

    def kill(self) -> int:
        """Kill the process, as a power cut would."""
        self._signal(signal.SIGKILL)
        return self._process.wait()

    def tail(self) -> str:
        """Return the last lines of the log."""
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"--- {self.log_path} ---", *lines[-_TAIL_LINES:]])

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def __enter__(self) -> RunningProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
