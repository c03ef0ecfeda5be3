"""A local Azure Blob server: Microsoft's emulator, installed once into the project's cache."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from tests.components.install_lock import install_lock
from tests.components.missing import missing
from tests.components.process import RunningProcess, free_port

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
#: The emulator's key, the same on every machine and published by Microsoft.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_CACHE = Path(__file__).parents[2] / ".cache" / "azurite"
_MAIN = Path("node_modules", "azurite", "dist", "src", "blob", "main.js")
_INSTALL_TIMEOUT_S = 170
_API_VERSION = "2021-12-02"


@dataclass(frozen=True)
class Azurite:
    host: str
    port: int
    process: RunningProcess

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}/{ACCOUNT}"

    def create_container(self, name: str) -> None:
        date = formatdate(usegmt=True)
        signed = (
            "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_API_VERSION}\n"
            f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        signature = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest())
        headers = {
            "x-ms-date": date,
            "x-ms-version": _API_VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{signature.decode()}",
            "Content-Length": "0",
        }
        url = f"{self.endpoint}/{name}?restype=container"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=10):
            pass


@contextmanager
def running_azurite(folder: Path) -> Iterator[Azurite]:
    """Run a server that keeps its blobs in memory."""
    main, port = installed_azurite(), free_port()
    argv = ["node", main, "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    argv += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with RunningProcess.start(argv, log_path=folder / "azurite.log") as process:
        process.wait_for_port("127.0.0.1", port, 60)
        yield Azurite("127.0.0.1", port, process)


def installed_azurite() -> Path:
    """Return the emulator's program, installed by npm if absent. Without npm the test is skipped, or fails in CI."""
    main = _CACHE / _MAIN
    with install_lock(_CACHE):
        return main if main.exists() else _install(main)


def _install(main: Path) -> Path:
    if not (shutil.which("npm") and shutil.which("node")):
        return _unavailable("npm and node are not on PATH")
    # Install beside the final folder, then rename: an interrupted installation is never used.
    unfinished = _CACHE.with_name("azurite.unfinished")
    for stale in (unfinished, _CACHE):
        shutil.rmtree(stale, ignore_errors=True)
    unfinished.mkdir(parents=True)
    argv = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(unfinished), f"azurite@{VERSION}"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return _unavailable(f"npm did not install azurite within {_INSTALL_TIMEOUT_S} s")
    if done.returncode != 0:
        return _unavailable(f"npm could not install azurite: {done.stderr.strip()[-500:]}")
    unfinished.rename(_CACHE)
    return main


def _unavailable(reason: str) -> Path:
    message = f"cannot run azurite: {reason}; install Node.js with npm"
    missing(message)
