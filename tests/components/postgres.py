"""A real PostgreSQL for tests: one server per session, and a fresh migrated database per test in tens of ms."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.migrate import migrate
from tests.components.process import ComponentFailed
from tests.components.silent_proxy import SilentProxy

_TEMPLATE = "migrated_template"
#: If it is set, databases have what a later release might have added.
EXPANDED_VARIABLE = "LAKERUNNER_TEST_EXPANDED"
_READY_S = 30.0


class PostgresServer:
    """An embedded server in its own folder. `stop` and `start` simulate an outage, `crash` a power cut."""

    def __init__(self, folder: Path) -> None:
        self._embedded = EmbeddedPostgres(folder)
        self._log_path = folder / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = self._embedded.spawn(self._log_path)
        self._wait_ready()
        with psycopg.connect(self._embedded.url, autocommit=True) as admin:
            # Tests kill processes, and no machine loses its power: what was written is there without waiting for disks.
            admin.execute("ALTER SYSTEM SET fsync = off")
            admin.execute("SELECT pg_reload_conf()")

    def stop(self) -> None:
        self._embedded.stop()
        self._reap()

    def crash(self) -> None:
        """Kill the server without a clean shutdown: it recovers from its log."""
        assert self._process is not None
        # Kill the whole session: a backend that outlives the server would prevent the next one from starting.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._reap()

    def new_database(self) -> str:
        """Create an empty, migrated database and return its address."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self._embedded.url, autocommit=True) as admin:
            if not admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [_TEMPLATE]).fetchone():
                admin.execute(f"CREATE DATABASE {_TEMPLATE}")
                template = Database(self._url_of(_TEMPLATE))
                migrate(template)
                if os.environ.get(EXPANDED_VARIABLE):
                    _expand(template)
                template.close()
            # Without fsync, copying files takes a fifth of the CPU time of copying pages through the log.
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy")
        return self._url_of(name)

    @contextmanager
    def behind_proxy(self, url: str) -> Iterator[tuple[SilentProxy, str]]:
        """Yield a proxy before this server, and the address of the database through it."""
        with SilentProxy(str(self._embedded.socket_dir / ".s.PGSQL.5432")) as proxy:
            yield proxy, f"postgresql://postgres@127.0.0.1:{proxy.port}{urlsplit(url).path}"

    def drop_database(self, url: str) -> None:
        name = urlsplit(url).path.lstrip("/")
        with psycopg.connect(self._embedded.url, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _url_of(self, name: str) -> str:
        return urlunsplit(urlsplit(self._embedded.url)._replace(path=f"/{name}"))

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                psycopg.connect(self._embedded.url).close()
                return
            except psycopg.OperationalError as error:
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    raise ComponentFailed(
                        f"PostgreSQL did not start: {error}\n{self._log_path.read_text()[-4000:]}"
                    ) from None
            time.sleep(0.05)

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(timeout=30)
            self._process = None


def _expand(database: Database) -> None:
    """Add to every table what a later release may add: columns of which the code here knows nothing."""
    with database.transaction() as tx:
        tables = tx.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
        ).fetchall()
        for table in tables:
            name = table["relname"]
            tx.execute(
                f"ALTER TABLE {name} ADD COLUMN added_later text, ADD COLUMN added_too integer NOT NULL DEFAULT 7"
            )
