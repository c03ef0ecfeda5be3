"""A local Azure storage queue: the queue server of Microsoft's emulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.components.azurite import ACCOUNT, installed_azurite
from tests.components.process import RunningProcess, free_port


@contextmanager
def running_azurite_queue(folder: Path) -> Iterator[str]:
    """Run a server that keeps its messages in memory, and yield its endpoint."""
    port = free_port()
    program = installed_azurite().parents[1] / "queue" / "main.js"
    argv = ["node", program, "--queueHost", "127.0.0.1", "--queuePort", str(port)]
    argv += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with RunningProcess.start(argv, log_path=folder / "azurite-queue.log") as process:
        process.wait_for_port("127.0.0.1", port, 60)
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"
