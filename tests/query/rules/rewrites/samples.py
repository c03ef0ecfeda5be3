"""Random samples of gauges that are likely to go wrong: at the edges of buckets, sent twice, not finite, and stale."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.query.rules.rewrites.records import SECOND_NS, SPAN_S, START_NS

METRICS = ("load", "load", "queue")
JOBS, ROUTES, CODES = ("api", "api-test", "cart", None), ("/a", "/b", "", None), ("200", "500")
#: No recorded value: a stale marker.
_STALE = 1


def batch(rng: random.Random, size: int, begin_s: int = 0, end_s: int = SPAN_S) -> list[bytes]:
    """Export requests with about so many samples in a stretch of time."""
    requests = []
    for _ in range(rng.randrange(3, 7)):
        job = rng.choice(JOBS)
        resource = [] if job is None else [{"key": "service.name", "value": {"stringValue": job}}]
        points: dict[str, list[dict[str, Any]]] = {}
        for _ in range(rng.randrange(1, max(2, size // 3))):
            points.setdefault(rng.choice(METRICS), []).append(_point(rng, begin_s, end_s))
        metrics = [{"name": name, "gauge": {"dataPoints": some}} for name, some in points.items()]
        requests.append(
            json.dumps(
                {
                    "resourceMetrics": [
                        {"resource": {"attributes": resource}, "scopeMetrics": [{"scope": {}, "metrics": metrics}]}
                    ]
                }
            ).encode()
        )
    return requests


def _point(rng: random.Random, begin_s: int, end_s: int) -> dict[str, Any]:
    edge_ns = rng.randrange(begin_s // 10, end_s // 10 + 1) * 10 * SECOND_NS
    # Series have few samples at the same time, which would be one sample that was sent twice.
    anywhere_ns = rng.randrange(begin_s * 1000, end_s * 1000) * 1_000_000
    time_ns = START_NS + max(0, rng.choice((edge_ns, edge_ns + 1_000_000, anywhere_ns, anywhere_ns, anywhere_ns)))
    attributes = [{"key": "code", "value": {"stringValue": rng.choice(CODES)}}]
    attributes.append({"key": "pod", "value": {"stringValue": f"p{rng.randrange(2000)}"}})
    if (route := rng.choice(ROUTES)) is not None:
        attributes.append({"key": "route", "value": {"stringValue": route}})
    point: dict[str, Any] = {"timeUnixNano": str(time_ns), "attributes": attributes}
    roll = rng.random()
    if roll < 0.02:
        return {**point, "flags": _STALE}
    if roll < 0.025:
        return {**point, "asDouble": "NaN"}
    return {**point, "asDouble": rng.choice((float(rng.randrange(500)), round(rng.uniform(-2, 2), 3)))}
