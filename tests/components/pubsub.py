"""A local Pub/Sub server: Google's in-memory server, built once by Go into the project's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.components.missing import missing
from tests.components.process import RunningProcess, free_port

_SOURCE = Path(__file__).parent / "pubsub_server"
_CACHE = Path(__file__).parents[2] / ".cache" / "pubsub"
_BUILD_TIMEOUT_S = 170


@contextmanager
def running_pubsub(folder: Path) -> Iterator[str]:
    """Run a server and yield its host:port, as PUBSUB_EMULATOR_HOST expects it."""
    program, port = _built(), free_port()
    with RunningProcess.start([program, "-port", str(port)], log_path=folder / "pubsub.log") as process:
        process.wait_for_port("localhost", port, 30)
        yield f"localhost:{port}"


def _built() -> Path:
    """Return the server's program, built if it is absent or its source changed."""
    source = b"".join((_SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    program = _CACHE / f"server-{hashlib.sha256(source).hexdigest()[:12]}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        return _unavailable("go is not on PATH")
    _CACHE.mkdir(parents=True, exist_ok=True)
    part = program.with_suffix(f".part-{os.getpid()}")
    try:
        argv = ["go", "build", "-mod=readonly", "-o", str(part), "."]
        done = subprocess.run(argv, cwd=_SOURCE, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return _unavailable(f"go did not build it within {_BUILD_TIMEOUT_S} s")
    if done.returncode != 0:
        return _unavailable(f"go could not build it: {done.stderr.strip()[-500:]}")
    return part.rename(program)


def _unavailable(reason: str) -> Path:
    message = f"cannot run Pub/Sub: {reason}; install Go"
    missing(message)
