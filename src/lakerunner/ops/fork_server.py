"""Start roles as forks of one process that has imported everything, so that they share its memory and start at once.

Each role as a process of its own imports the same 140 MB of modules in 3 s of CPU. A fork shares them copy-on-write and
starts in milliseconds. The process that forks never starts a thread, opens a connection or starts Spark: none of these
survives a fork. A role is still a process of its own; killing the fork server harms no role.

Roles are children of the supervisor: the fork server forks twice, the process in between ends, and the kernel gives the
role to the nearest ancestor that adopts orphans (`adopt_orphans`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import orjson

from lakerunner.model.errors import Unavailable
from lakerunner.ops.threads import WITHOUT_THREADS

if TYPE_CHECKING:
    from lakerunner.runtime.kernels import Share

#: prctl(2): become the parent of orphaned descendants.
_PR_SET_CHILD_SUBREAPER = 36
_MAX_MESSAGE = 1 << 20
#: How long a fork may take, on a busy machine too.
_FORK_S = 30.0
#: How often the process that compiles kernels is looked at.
_COMPILER_LOOK_S = 1.0
#: Fields of /proc/self/stat after the name: where the command line lies in memory.
_ARG_START, _ARG_END = 45, 46


class Process(Protocol):
    """What the supervisor needs of a process that it started."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...


class AdoptedProcess:
    """A child that we did not fork ourselves; like Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(0.02)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


def adopt_orphans() -> bool:
    """Make this process the parent of orphaned descendants. Returns False where the kernel cannot do that."""
    return sys.platform == "linux" and bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def reap_orphans(known: Sequence[int | None]) -> None:
    """Collect ended processes that were adopted and that nobody waits for, such as the Java of a killed role."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in known:
            os.waitpid(ended.si_pid, 0)


def plain_env() -> dict[str, str]:
    """The environment without settings: roles get theirs when they are started."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LAKERUNNER_")}


class ForkServer:
    """The supervisor's side. Its `module` has a `main` that runs the role which the command line names."""

    def __init__(self, module: str, roles: Sequence[str], env: Mapping[str, str]) -> None:
        self._env = {**env, **WITHOUT_THREADS}
        self._argv = [sys.executable, "-m", "lakerunner.ops.fork_server", module, *roles]
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._ready = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                self._argv, env=self._env, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
            )
        self._socket, self._ready = ours, False

    def spawn(self, role: str, env: Mapping[str, str], output: int, wait_s: float = 0.0) -> Process | None:
        """Fork a role that writes to the descriptor `output`. Returns None if the fork server is not ready."""
        if self._socket is None:
            return None
        try:
            if not self._is_ready(wait_s):
                return None
            self._socket.settimeout(_FORK_S)
            socket.send_fds(self._socket, [orjson.dumps({"role": role, "env": dict(env)})], [output])
            pid = self._socket.recv(_MAX_MESSAGE)
            if pid:
                return AdoptedProcess(int(pid))
        except (OSError, ValueError) as reason:
            from lakerunner.runtime.telemetry import log

            log().warning("fork server is gone", error=str(reason))
        # One that never became ready cannot import the roles, and would not the next time.
        again = self._ready
        self.close()
        if again:
            self.start()
        return None

    def _is_ready(self, wait_s: float) -> bool:
        assert self._socket is not None
        if not self._ready:
            self._socket.settimeout(wait_s)
            try:
                self._ready = bool(self._socket.recv(_MAX_MESSAGE))
            except (BlockingIOError, TimeoutError):
                return False
            if not self._ready:
                raise ConnectionError("it ended while it imported the roles")
        return self._ready

    def close(self) -> None:
        """End the fork server. Its roles go on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def start_fork_server(module: str, roles: Sequence[str]) -> ForkServer | None:
    """Become the parent of roles, and let a fork server import them. None where the kernel cannot do that."""
    if not adopt_orphans():
        return None
    server = ForkServer(module, roles, plain_env())
    server.start()
    return server


# -- in the fork server ------------------------------------------------------------------------------------------------


class _LeftOut:
    """Imports that fail. Where pandas is installed, pyarrow imports it, for nothing: half a second and 60 MB."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out here", name=name)


def main() -> int:
    from lakerunner.ops.compile_kernels import compile_behind
    from lakerunner.runtime.kernels import are_being_compiled, are_compiled, load_at_once

    module, *roles = sys.argv[1:]
    requests = socket.socket(fileno=os.dup(0))
    # Garbage that is never collected here leaves no holes in the pages that the roles share.
    gc.disable()
    sys.meta_path.insert(0, _LeftOut())
    run = importlib.import_module(module).main
    shares = _import(roles)
    # Roles that start while others compile find the lock taken, and do not compile everything themselves.
    compiler = None if are_compiled(shares) else compile_behind(shares)
    if compiler is None and not are_being_compiled():
        load_at_once(shares)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise Unavailable(f"cannot fork roles: importing them started {threads - 1} threads")
    gc.freeze()
    requests.send(b"ready")
    while True:
        if compiler is not None:
            compiler = _watched(compiler, requests)
        message, descriptors, _, _ = socket.recv_fds(requests, _MAX_MESSAGE, 1)
        if not message:
            return 0
        request = orjson.loads(message)
        pid = _fork_twice()
        if pid == 0:
            requests.close()
            _become(request["role"], request["env"], descriptors[0])
            sys.exit(run())
        os.close(descriptors[0])
        requests.send(b"%d" % pid)


def _import(roles: Sequence[str]) -> list[Share]:
    """Import the roles, and return the kernels that they use."""
    from lakerunner.ops.compile_kernels import kernels_of
    from lakerunner.ops.roles import CANARY_ROLES, DEMO_ROLES, ROLES
    from lakerunner.runtime import run  # noqa: F401

    return kernels_of(entry for entry in (*ROLES, *CANARY_ROLES, *DEMO_ROLES) if entry.name in roles)


def _watched(compiler: int, requests: socket.socket) -> int | None:
    """Wait for the next request. Return the process that compiles, or None once it ended."""
    while not select.select([requests], [], [], _COMPILER_LOOK_S)[0]:
        if os.waitpid(compiler, os.WNOHANG)[0]:
            return None
    return compiler


def _fork_twice() -> int:
    """Return the pid of a grandchild, which is an orphan by then, or 0 in the grandchild."""
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        between_pid = os.getpid()
        role = os.fork()
        if role:
            os.write(write, b"%d" % role)
            os._exit(0)
        os.close(read)
        os.close(write)
        # A role ends when its supervisor is no longer its parent, so it must not begin before it is.
        while os.getppid() == between_pid:
            time.sleep(0.001)
        return 0
    os.close(write)
    pid = int(os.read(read, 32))
    os.close(read)
    os.waitpid(between, 0)
    return pid


def _become(role: str, env: Mapping[str, str], output: int) -> None:
    """Turn this fork into what a new process of the role would be."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    os.environ.clear()
    os.environ.update(env)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    sys.argv[:] = ["lakerunner", role]
    _show_as(b"lakerunner\0" + role.encode())
    gc.enable()


def _show_as(title: bytes) -> None:
    """Change the command line that `ps` and `pgrep -f` show."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    start, size = int(fields[_ARG_START]), int(fields[_ARG_END]) - int(fields[_ARG_START])
    ctypes.memmove(start, title[: size - 1].ljust(size, b"\0"), size)


if __name__ == "__main__":
    sys.exit(main())
