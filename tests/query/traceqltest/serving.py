"""A real lake that has some traces, served over HTTP.

The requests are raw objects of a bucket, and are ingested in several items: traces then lie in several segments.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signals.traces import TRACES
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.query.warm import warm
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from tests.components.postgres import PostgresServer
from tests.query.lake_of_series import LakeOfSeries
from tests.query.worker_lake import worker_lake
from tests.serve.served import AuthOf, serving

_COLLECTOR = "traceqltest"
_ITEMS = 3


def ingest(lake: LakeOfSeries, org_id: uuid.UUID, requests: Sequence[bytes], items: int = _ITEMS) -> None:
    """Write export requests as raw objects, run ingest's task over them, and commit the segments that it made."""
    config = StoreConfig.of(lake.settings)
    for number in range(items):
        item_id = fresh_id()
        key = f"otel-raw/{org_id}/{_COLLECTOR}/{item_id}/traces.json"
        meta = lake.store.put(key, b"\n".join(requests[number::items]))
        raw = RawObject(org_id, _COLLECTOR, TRACES.name, config.url, key, version_of(meta), meta.size_bytes)
        result = run_task(IngestTask(item_id, org_id, _COLLECTOR, TRACES.name, (raw,), {config.url: config}, config))
        if result.error is not None:
            raise result.error
        refused = [outcome.quarantine_reason for outcome in result.objects if outcome.quarantine_reason]
        assert not refused, refused
        lake.commit(org_id, list(result.segments))


@contextmanager
def served_traces(requests: Sequence[bytes]) -> Iterator[str]:
    """Serve the traces of export requests; yields the address."""
    with tempfile.TemporaryDirectory(prefix="lakerunner-traceqltest-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder) / "server")
        server.start()
        try:
            with worker_lake(Path(folder) / "lake", server.new_database()) as lake:
                warm()
                org_id = fresh_id()
                ingest(lake, org_id, requests)
                with serving(lake, AuthOf(org_id)) as serve:
                    yield serve().url
        finally:
            server.stop()
