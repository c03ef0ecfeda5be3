"""A machine on which only the data folder can be written, and nobody knows the user: everything works there."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.components.missing import missing
from tests.components.user_library import user_library
from tests.ops.serve_process import ServeProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

USER_ID = 54_321
#: Everything becomes read-only but one folder. Then the process gets an id that no list of users has.
SCRIPT = f"""
mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,ro,bind / && mount -o remount,rw,bind "$0"
cd / && exec unshare -U --map-user={USER_ID} --map-group={USER_ID} "$@"
"""


class Elsewhere(ServeProcess):
    """`serve` with only its own folder writable, as an unknown user without a home."""

    def __init__(self, folder: Path, library: Path) -> None:
        settings = {"HOME": "/nonexistent", "LAKERUNNER_AUTH_REQUIRED": "false", "LD_PRELOAD": str(library)}
        super().__init__(folder / "data", "lakerunner", **settings)
        self._folder = folder

    def command(self, *options: str) -> list[str]:
        return ["unshare", "-m", "sh", "-c", SCRIPT, str(self._folder), *super().command(*options)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: the socket of the database has no other place than the data folder."""
    with tempfile.TemporaryDirectory(prefix="lake-") as path:
        yield Path(path)


def test_everything_works_where_only_the_data_folder_can_be_written(folder: Path) -> None:
    _require_namespaces()
    serve = Elsewhere(folder, user_library())
    try:
        serve.start().await_all_ready(120)
        raw = serve.data_dir / "bucket" / "logs-raw"
        raw.mkdir(parents=True, exist_ok=True)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        (raw / "any.jsonl").write_text("".join(f'{{"timestamp": "{now}", "message": "row {n}"}}\n' for n in range(7)))
        [port] = [address.port for address in serve.addresses() if address.name == "query-api"]
        assert _rows(port) == 7
        assert serve.terminate() == 0
    finally:
        serve.close()


def _rows(port: int) -> int:
    """The number of records, once there are any."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        params = {"query": 'sum(count_over_time({service_name=~".+"}[1h]))'}
        answer = httpx.get(f"http://127.0.0.1:{port}/loki/api/v1/query", params=params, timeout=30).json()
        if found := answer["data"]["result"]:
            return int(found[0]["value"][1])
        time.sleep(0.5)
    raise AssertionError("nothing was ingested")


def _require_namespaces() -> None:
    argv = ["unshare", "-m", "sh", "-c", "mount --make-rprivate / && exec unshare -U --map-user=1 true"]
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        message = "cannot make namespaces of mounts and users: not permitted here"
        missing(message)
