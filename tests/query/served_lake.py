"""A real lake that has the records of some export requests, served over HTTP."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakerunner.model.ids import fresh_id
from lakerunner.model.signal import Signal
from lakerunner.query.warm import warm
from tests.components.postgres import PostgresServer
from tests.query.ingesting import ingest
from tests.query.worker_lake import worker_lake
from tests.serve.served import AuthOf, serving


@contextmanager
def served_lake(requests: Sequence[bytes], signal: Signal, items: int = 1) -> Iterator[str]:
    """Serve what so many items of ingest made of the requests; yields the address."""
    with tempfile.TemporaryDirectory(prefix="lakerunner-served-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder) / "server")
        server.start()
        try:
            with worker_lake(Path(folder) / "lake", server.new_database()) as lake:
                warm()
                org_id = fresh_id()
                ingest(lake, org_id, requests, signal, items)
                with serving(lake, AuthOf(org_id)) as serve:
                    yield serve().url
        finally:
            server.stop()
