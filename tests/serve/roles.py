"""A query API and its worker as processes of their own, as in production: for what threads of a test cannot show."""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from lakerunner.index import api_keys, orgs
from lakerunner.index.api_keys import Scope
from lakerunner.index.database import Database
from tests.components.process import RunningProcess, free_port

ROOT = Path(__file__).parents[2]
_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Roles:
    api: RunningProcess
    worker: RunningProcess
    url: str

    def client(self, secret: str = "", timeout_s: float = 60.0) -> httpx.Client:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s)

    def rss_bytes(self) -> tuple[int, int]:
        """Of the API and of the worker, now."""
        api, worker = (psutil.Process(process.pid).memory_info().rss for process in (self.api, self.worker))
        return api, worker


@dataclass(frozen=True, slots=True)
class Keyed:
    """An org and a key that may query it."""

    org_id: uuid.UUID
    name: str
    secret: str


def keyed_org(database: Database, name: str, org_id: uuid.UUID | None = None) -> Keyed:
    with database.transaction() as tx:
        org = orgs.create_org(tx, name, org_id)
        made = api_keys.create_key(tx, name, [Scope.QUERY], [org.org_id])
    return Keyed(org.org_id, name, made.secret)


@contextmanager
def running_roles(folder: Path, database_url: str, **settings: object) -> Iterator[Roles]:
    """Settings as `api_max_series=10`: what a role reads from `LAKERUNNER_API_MAX_SERIES`."""
    port = free_port()
    env = {
        "PYTHONPATH": str(ROOT / "src"),
        "LAKERUNNER_INDEX_URL": database_url,
        "LAKERUNNER_DATA_DIR": str(folder),
        "LAKERUNNER_HTTP_PORT": "0",
        **{f"LAKERUNNER_{name.upper()}": str(value) for name, value in settings.items()},
    }
    with contextlib.ExitStack() as stack:
        worker = stack.enter_context(_role("query-worker", folder, env))
        api = stack.enter_context(_role("query-api", folder, {**env, "LAKERUNNER_HTTP_PORT": str(port)}))
        roles = Roles(api, worker, f"http://127.0.0.1:{port}")
        api.wait_for_port("127.0.0.1", port, _READY_S)
        _await_ready(roles, folder)
        yield roles


def _role(name: str, folder: Path, env: dict[str, str]) -> RunningProcess:
    return RunningProcess.start([sys.executable, "-m", "lakerunner", name], log_path=folder / f"{name}.log", env=env)


def _await_ready(roles: Roles, folder: Path) -> None:
    end = time.monotonic() + _READY_S
    with roles.client() as client:
        while client.get("/readyz").status_code != 200 or not (folder / "query-worker.address").exists():
            assert time.monotonic() < end, f"not ready in time\n{roles.api.tail()}\n{roles.worker.tail()}"
            time.sleep(0.1)
