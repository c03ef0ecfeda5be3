"""What roles of this release send each other: an example of every message, and of every kind of request to a worker.

`python -m tests.upgrade.recording` writes them to tests/upgrade/recorded, where the next release reads them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from lakerunner.bus.messages import (
    DeadLetter,
    Message,
    ObjectSeen,
    Redriven,
    SegmentsMade,
    WindowsChanged,
    WorkReady,
    encode,
)
from lakerunner.query.fanout.protocol import (
    EvaluateRequest,
    Fragment,
    Kind,
    Read,
    Request,
    ScanRequest,
    SegmentObjects,
)
from lakerunner.query.language import QueryOptions, RowPlan, StepPlan
from lakerunner.query.languages import language
from lakerunner.query.plan.leaf import Leaf, Piece
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.times import QueryTimes

RECORDED = Path(__file__).with_name("recorded")
_ONE, _TWO = uuid.UUID(int=1), uuid.UUID(int=2)
MESSAGES: tuple[Message, ...] = (
    ObjectSeen(_ONE, _TWO, "edge", "logs", "s3://raw", "otel-raw/a.binpb", "etag", 4096),
    WorkReady(_ONE, _TWO, "logs", "ingest"),
    SegmentsMade(_ONE, "edge", "metrics", 20261117, 60, 1, (_ONE, _TWO)),
    WindowsChanged(_ONE, ((60, 1_794_873_600_000_000_000), (300, 0))),
    DeadLetter("segments.logs.ingest", 3, 17, "key", "ingest", 15, "bug", "cannot", "eyJ2IjoxfQ=="),
    Redriven(17),
)
_START_MS = 1_794_873_600_000
_TIMES = QueryTimes(_START_MS, _START_MS + 600_000, 60_000)
#: Language and text of queries that workers evaluate.
QUERIES = (
    ("promql", 'sum by (job) (rate(http_requests_total{code=~"5.."}[5m])) > 0.5'),
    ("logql", '{service_name="cart"} |= "timeout" | json | status >= 500'),
    ("logql", 'sum by (level) (count_over_time({service_name="cart"}[1m]))'),
    ("traceql", '{ resource.service.name = "cart" && duration > 100ms } >> { status = error }'),
    ("traceql", "{ status = error } | rate() by (resource.service.name)"),
    ("rows", 'service_name = "cart" and severity_number >= 17'),
    ("traces", "0af7651916cd43dd8448eb211c80319c"),
)


def requests() -> Iterator[tuple[str, Request]]:
    """A name, and a request as the API sends it."""
    common: dict[str, Any] = {
        "org_id": _ONE,
        "query_id": _TWO,
        "segments": (SegmentObjects(_TWO, (f"db/{_ONE}/edge/20261117/metrics/00/tbl_x.parquet",), 5, 1, 2, 60),),
        "deadline_s": time.monotonic() + 60,
        "max_bytes": 1 << 20,
    }
    leaf = Leaf("metrics", 1, 10**18, (Matcher("job", MatchKind.REGEX, "a.*"),))
    yield "scan", ScanRequest(kind=Kind.SAMPLES, leaf=leaf, pieces=(Piece(60, 1, 2),), **common)
    for name, text in QUERIES:
        times = _TIMES if "rate" in text or "count_over_time" in text else QueryTimes(_TIMES.start_ms, _TIMES.end_ms, 0)
        plan = language(name).compile(text, times, QueryOptions(signal="logs", limit=100))
        if isinstance(plan, StepPlan):
            payload, rows = plan.payload(np.array([_START_MS, _START_MS + 60_000]), 1_000), plan.reads_rows
        else:
            assert isinstance(plan, RowPlan)
            payload, rows = plan.payload(100), True
        reads = tuple(Read(each, (0,)) for each in plan.leaves)
        yield f"{name}: {text}", EvaluateRequest(fragment=Fragment(name, payload, reads, rows), **common)


def ticket_of(request: Request) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(request.to_ticket("token"))
    # The clock goes on.
    document["time_left_s"] = 60.0
    if "payload" in document:
        document["payload"] = json.loads(document["payload"])
    return document


def main() -> None:
    messages = {type(each).__name__: orjson.loads(encode(each)) for each in MESSAGES}
    tickets = {name: ticket_of(request) for name, request in requests()}
    for name, document in (("messages", messages), ("tickets", tickets)):
        (RECORDED / f"{name}.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
