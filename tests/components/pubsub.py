"""A local Pub/Sub server: Google's in-memory server, built once by Go into the project's cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.components.go_program import go_program
from tests.components.process import RunningProcess, free_port

_SOURCE = Path(__file__).parent / "pubsub_server"
_BUILD_TIMEOUT_S = 170


def pubsub_program() -> Path:
    """Return the server's program, built if it is absent."""
    return go_program(_SOURCE, "pubsub/server", _BUILD_TIMEOUT_S)


@contextmanager
def running_pubsub(folder: Path) -> Iterator[str]:
    """Run a server and yield its host:port, as PUBSUB_EMULATOR_HOST expects it."""
    program, port = pubsub_program(), free_port()
    with RunningProcess.start([program, "-port", str(port)], log_path=folder / "pubsub.log") as process:
        process.wait_for_port("localhost", port, 30)
        yield f"localhost:{port}"
