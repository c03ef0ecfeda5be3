"""Random spans that are likely to go wrong: at the edges of buckets, with empty names and attributes of two types."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.query.rules.rewrites.records import SECOND_NS, SPAN_S, START_NS

SERVICES = ("api", "api-test", "cart", "", None)
NAMES = ("GET /", "ping", "", "query")
KINDS, STATUSES = (0, 1, 2, 3), (0, 1, 2)


def batch(rng: random.Random, size: int, begin_s: int = 0, end_s: int = SPAN_S) -> list[bytes]:
    """Export requests with about so many spans in a stretch of time."""
    requests = []
    for _ in range(rng.randrange(3, 7)):
        service = rng.choice(SERVICES)
        resource = [] if service is None else [{"key": "service.name", "value": {"stringValue": service}}]
        spans = [_span(rng, begin_s, end_s) for _ in range(rng.randrange(1, max(2, size // 3)))]
        if rng.random() < 0.1:
            # Sent twice: a query counts it once.
            spans.append(rng.choice(spans))
        requests.append(
            json.dumps(
                {
                    "resourceSpans": [
                        {"resource": {"attributes": resource}, "scopeSpans": [{"scope": {}, "spans": spans}]}
                    ]
                }
            ).encode()
        )
    return requests


def _span(rng: random.Random, begin_s: int, end_s: int) -> dict[str, Any]:
    edge_ns = rng.randrange(begin_s // 10, end_s // 10 + 1) * 10 * SECOND_NS
    anywhere_ns = rng.randrange(begin_s * SECOND_NS, end_s * SECOND_NS)
    time_ns = rng.choice((edge_ns, edge_ns + 1, edge_ns - 1, *(anywhere_ns,) * 5))
    start_ns = START_NS + max(time_ns, 0)
    attributes = []
    if rng.random() < 0.7:
        attributes.append(
            {
                "key": "http.status",
                "value": rng.choice(({"intValue": "200"}, {"intValue": "500"}, {"stringValue": "200"})),
            }
        )
    if rng.random() < 0.7:
        size = rng.choice(({"intValue": str(rng.randrange(1000))}, {"doubleValue": rng.uniform(-1, 1)}))
        attributes.append({"key": "size", "value": size})
    return {
        "traceId": f"{rng.randrange(1, 1 << 64):032x}",
        "spanId": f"{rng.randrange(1, 1 << 60):016x}",
        "name": rng.choice(NAMES),
        "kind": rng.choice(KINDS),
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(start_ns + rng.choice((0, 1, rng.randrange(2 * SECOND_NS)))),
        "status": {"code": rng.choice(STATUSES)},
        "attributes": attributes,
    }
