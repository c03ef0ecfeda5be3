"""The records of a suite on their real way into a lake: raw objects in a bucket, ingest's task, segments, the index."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signals.logs import LOGS
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from tests.query.lake_of_series import LakeOfSeries

_COLLECTOR = "logqltest"


def ingest(lake: LakeOfSeries, org_id: uuid.UUID, requests: Sequence[bytes], per_object: int = 200) -> list[Segment]:
    """Write export requests as raw objects, run ingest's task over them, and commit the segments that it made."""
    config = StoreConfig.of(lake.settings)
    item_id = fresh_id()
    raws = []
    for first in range(0, len(requests), per_object):
        key = f"otel-raw/{org_id}/{_COLLECTOR}/{item_id}/logs_{first:06}.json"
        meta = lake.store.put(key, b"\n".join(requests[first : first + per_object]))
        version = version_of(meta)
        raws.append(RawObject(org_id, _COLLECTOR, LOGS.name, config.url, key, version, meta.size_bytes))
    task = IngestTask(item_id, org_id, _COLLECTOR, LOGS.name, tuple(raws), {config.url: config}, config)
    result = run_task(task)
    if result.error is not None:
        raise result.error
    refused = [outcome.quarantine_reason for outcome in result.objects if outcome.quarantine_reason]
    assert not refused, refused
    lake.commit(org_id, list(result.segments))
    return list(result.segments)
