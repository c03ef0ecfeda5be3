"""Small export requests of log records, and orgs that have them ingested."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import orjson

from lakerunner.model.ids import fresh_id
from tests.query.ingesting import ingest
from tests.query.worker_lake import WorkerLake

S = 1_000_000_000


def log_request(
    service: str, lines: Sequence[tuple[int, str]], attributes: Mapping[str, str] | None = None, level: str = "INFO"
) -> bytes:
    """One export request of a service: times in nanoseconds and lines."""
    pairs = [{"key": name, "value": {"stringValue": text}} for name, text in (attributes or {}).items()]
    records = [
        {
            "timeUnixNano": str(time_ns),
            "severityText": level,
            "body": {"stringValue": line},
            "attributes": [*pairs, {"key": "number", "value": {"intValue": str(number)}}],
        }
        for number, (time_ns, line) in enumerate(lines)
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    document = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": {}, "logRecords": records}]}]}
    return orjson.dumps(document)


def org_with_logs(lake: WorkerLake, requests: Sequence[bytes]) -> uuid.UUID:
    org_id = fresh_id()
    ingest(lake, org_id, requests)
    return org_id
