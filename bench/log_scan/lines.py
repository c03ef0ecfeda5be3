"""Makes log records as a shop writes them: access lines, JSON, logfmt and plain text, with ids in line and fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import with_keys
from lakerunner.model.ids import fresh_id
from lakerunner.model.signals.logs import LOGS
from lakerunner.model.time import NS_PER_MS, NS_PER_S
from lakerunner.query.scan.rows.request import RowSegment
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of

ORG = UUID(int=1)
START_NS = 1_700_000_000 * NS_PER_S
ROWS_PER_SEGMENT = 200_000
SEGMENT_NS = 240 * NS_PER_S
SERVICES = [f"service-{number:02}" for number in range(30)]
USERS = 20_000
#: A text that a few lines have.
NEEDLE = "payment-0012345"


@dataclass(frozen=True)
class Lake:
    segments: Sequence[RowSegment]
    bucket: Path
    #: Ids that one record has.
    trace_id: str
    request_id: str

    @property
    def paths(self) -> list[str]:
        return [str(self.bucket / segment.key) for segment in self.segments]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


def lake(folder: Path, rows: int) -> Lake:
    """A lake of so many records in the folder, which is filled if it is empty."""
    bucket, noted = folder / "bucket", folder / "lake.json"
    if not noted.exists():
        noted.write_bytes(orjson.dumps(_written(bucket, rows)))
    found = orjson.loads(noted.read_bytes())
    segments = [RowSegment.from_json(each) for each in found["segments"]]
    return Lake(segments, bucket, found["trace_id"], found["request_id"])


def _written(bucket: Path, rows: int) -> dict[str, object]:
    store = open_store(StoreConfig(bucket.as_uri()))
    random = np.random.default_rng(7)
    segments, trace_id, request_id = [], "", ""
    for number in range(max(1, rows // ROWS_PER_SEGMENT)):
        table = records(number, min(rows, ROWS_PER_SEGMENT), random)
        (body,) = encode_tables(LOGS, {"": table})
        segment = segment_of(
            LOGS, describe(LOGS, table), segment_id=fresh_id(), org_id=ORG, collector="bench", size_bytes=body.size
        )
        store.put(keys.segment_keys(segment)[0], memoryview(body))
        segments.append(RowSegment.of(segment).to_json())
        trace_id = trace_id or table.column("trace_id")[len(table) // 3].as_py()
        request_id = request_id or table.column("attr_request_id")[len(table) // 3].as_py()
    return {"segments": segments, "trace_id": trace_id, "request_id": request_id}


def records(number: int, rows: int, random: np.random.Generator) -> pa.Table:
    """The records of one segment, sorted. Some services talk more than others; few lines are errors."""
    weights = 1 / np.arange(1, len(SERVICES) + 1)
    service = random.choice(len(SERVICES), rows, p=weights / weights.sum())
    times = START_NS + number * SEGMENT_NS + random.integers(0, SEGMENT_NS, rows)
    level = random.choice(4, rows, p=[0.1, 0.82, 0.05, 0.03])
    levels = pa.array(["DEBUG", "INFO", "WARN", "ERROR"]).take(pa.array(level))
    traces, spans, requests = hexed(random, rows // 5, 16), hexed(random, rows // 2, 8), hexed(random, rows, 8)
    millis, path = random.integers(1, 3_000, rows), random.integers(0, 200, rows)
    user = random.integers(0, USERS, rows)
    status = pa.array([200, 201, 404, 500]).take(pa.array(random.choice(4, rows, p=[0.8, 0.1, 0.07, 0.03])))
    lines = _lines(rows, random, requests, levels, status, millis, path, user)
    columns = {
        "timestamp": pa.array(times),
        "observed_timestamp": pa.array(times + random.integers(0, 5 * NS_PER_MS, rows)),
        "service_name": pa.array(SERVICES).take(pa.array(service)),
        "severity": levels,
        "severity_number": pa.array([5, 9, 13, 17]).take(pa.array(level)),
        "message": lines,
        "trace_id": traces.take(pa.array(random.integers(0, len(traces), rows))),
        "span_id": spans.take(pa.array(random.integers(0, len(spans), rows))),
        "flags": pa.array(np.ones(rows, np.int64)),
    }
    pods = service * 8 + random.integers(0, 8, rows)
    attributes = {
        "attr_http_method": pa.array(["GET", "POST", "PUT"]).take(pa.array(random.integers(0, 3, rows))),
        "attr_http_status": status,
        "attr_url_path": numbered("/api/v1/items/", path, 1),
        "attr_user_id": numbered("user-", user, 5),
        "attr_request_id": requests,
        "attr_duration_ms": pa.array(random.exponential(40.0, rows)),
        "resource_k8s_pod_name": numbered("pod-", pods, 4),
        "resource_host_name": numbered("node-", pods % 40, 3),
        "scope_name": numbered("io.shop.", service % 12, 1),
    }
    fixed = [
        columns[column.name].cast(column.type) if column.name in columns else pa.nulls(rows, column.type)
        for column in LOGS.rows.columns
    ]
    table = pa.Table.from_arrays(fixed, schema=LOGS.rows.schema())
    for name in sorted(attributes):
        table = table.append_column(name, attributes[name])
    table = with_keys(table, {name: [name.split("_", 1)[1].replace("_", ".")] for name in attributes})
    return table.sort_by([(name, "ascending") for name in LOGS.rows.sort_key])


def _lines(
    rows: int,
    random: np.random.Generator,
    requests: pa.Array,
    levels: pa.Array,
    status: pa.Array,
    millis: np.ndarray,
    path: np.ndarray,
    user: np.ndarray,
) -> pa.Array:
    took, users = pa.array(millis).cast(pa.string()), numbered("user-", user, 5)
    payment = numbered("payment-", random.integers(0, 10_000_000, rows), 7)
    address = [pa.array(random.integers(0, 256, rows)).cast(pa.string()) for _ in range(2)]
    size = pa.array(random.integers(100, 90_000, rows)).cast(pa.string())
    shard = numbered("shard-", random.integers(0, 64, rows), 2)
    levels = pc.ascii_lower(levels)
    forms = [
        joined(["10.7.", address[0], ".", address[1], ' - - "GET ', numbered("/api/v1/items/", path, 1),
                '?page=2 HTTP/1.1" ', status.cast(pa.string()), " ", size, ' "okhttp/4.12" ', took, "ms"], rows),
        joined(['{"level":"', levels, '","msg":"charged payment","payment":"', payment, '","customer":"',
                users, '","took_ms":', took, ',"request_id":"', requests, '"}'], rows),
        joined(["level=", levels, ' msg="upstream timeout, will retry" upstream=inventory after=', took,
                "ms user=", users, " request_id=", requests], rows),
        joined(["cache miss for ", numbered("item-", path, 6), " of ", users, ", loaded from ", shard, " in ", took,
                "ms"], rows),
    ]  # fmt: skip
    return pc.choose(pa.array(random.integers(0, len(forms), rows)), *forms)


def joined(parts: Sequence[pa.Array | str], rows: int) -> pa.Array:
    arrays = [
        pa.array([part]).take(pa.array(np.zeros(rows, np.int64))) if isinstance(part, str) else part for part in parts
    ]
    return pc.binary_join_element_wise(*arrays, "")


def numbered(prefix: str, numbers: np.ndarray, width: int) -> pa.Array:
    return joined([prefix, pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")], len(numbers))


def hexed(random: np.random.Generator, count: int, size: int) -> pa.Array:
    raw = random.bytes(count * size).hex()
    return pa.array([raw[at : at + 2 * size] for at in range(0, len(raw), 2 * size)])
