"""Log records written as real segments of a real lake."""

from __future__ import annotations

import uuid

import pyarrow as pa

from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signals.logs import LOGS
from lakerunner.store import keys
from lakerunner.store.segment_writer import describe, encode_tables, segment_of
from tests.query.lake_of_series import LakeOfSeries

HOUR_NS = 3_600_000_000_000
HOURS, ROWS = 6, 40


def write_logs(lake: LakeOfSeries, org_id: uuid.UUID) -> list[Segment]:
    """Two overlapping segments per hour, of services that take turns; attributes differ between hours."""
    segments = []
    for hour in range(HOURS):
        for half in range(2):
            rows = [
                {
                    "timestamp": hour * HOUR_NS + number * 60_000_000_000 + half,
                    "service_name": f"s{number % 4}",
                    "severity": "INFO" if number % 5 else "ERROR",
                    "severity_number": 9 if number % 5 else 17,
                    "message": f"hour {hour} half {half} number {number}",
                    "trace_id": f"{hour:02d}{half}{number:029d}",
                }
                for number in range(ROWS)
            ]
            schema = LOGS.rows.schema().append(pa.field("attr_n", pa.int64() if hour % 2 else pa.float64()))
            table = pa.Table.from_pylist([{**row, "attr_n": hour} for row in rows], schema=schema)
            segments.append(put_logs(lake, org_id, table))
    lake.commit(org_id, segments)
    return segments


def put_logs(lake: LakeOfSeries, org_id: uuid.UUID, table: pa.Table) -> Segment:
    table = table.sort_by([(name, "ascending") for name in LOGS.rows.sort_key])
    (body,) = encode_tables(LOGS, {"": table})
    about = describe(LOGS, table)
    segment = segment_of(LOGS, about, segment_id=fresh_id(), org_id=org_id, collector="test", size_bytes=body.size)
    (key,) = keys.segment_keys(segment)
    lake.store.put(key, memoryview(body))
    return segment
