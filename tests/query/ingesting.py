"""Export requests on their real way into a lake: raw objects in a bucket, ingest's task, segments, the index."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals.logs import LOGS
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from tests.query.lake_of_series import LakeOfSeries

_COLLECTOR = "suite"
_PER_OBJECT = 200


def ingest(
    lake: LakeOfSeries, org_id: uuid.UUID, requests: Sequence[bytes], signal: Signal = LOGS, items: int = 1
) -> list[Segment]:
    """Write export requests as raw objects, run ingest's task over each item, and commit the segments that it made."""
    config = StoreConfig.of(lake.settings)
    segments: list[Segment] = []
    for number in range(items):
        of_item = requests[number::items]
        item_id = fresh_id()
        raws = []
        for first in range(0, len(of_item), _PER_OBJECT):
            key = f"otel-raw/{org_id}/{_COLLECTOR}/{item_id}/{signal.name}_{first:06}.json"
            meta = lake.store.put(key, b"\n".join(of_item[first : first + _PER_OBJECT]))
            raws.append(RawObject(org_id, _COLLECTOR, signal.name, config.url, key, version_of(meta), meta.size_bytes))
        task = IngestTask(item_id, org_id, _COLLECTOR, signal.name, tuple(raws), {config.url: config}, config)
        result = run_task(task)
        if result.error is not None:
            raise result.error
        refused = [outcome.quarantine_reason for outcome in result.objects if outcome.quarantine_reason]
        assert not refused, refused
        lake.commit(org_id, list(result.segments))
        segments += result.segments
    return segments
