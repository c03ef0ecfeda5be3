"""Random log records whose labels, lines and times are likely to go wrong: edges of buckets, broken lines, repeats."""

from __future__ import annotations

import json
import random
from typing import Any

#: A full hour, so that the records of a lake lie in one or two of its hours.
START_NS = 1_790_000_000_000_000_000 // 3_600_000_000_000 * 3_600_000_000_000
SECOND_NS = 1_000_000_000
SPAN_S = 240
SERVICES = ("api", "api-test", "cart", None)
REGIONS = ("eu", "us", "eu-2", None)
ROUTES = ("/a", "/b", "", None)
LEVELS = ("INFO", "ERROR", None)
WORDS = ("timeout", "ok", "refused", "error: x")
STATUSES = ("200", "500", "503", "none")


def batch(rng: random.Random, size: int, begin_s: int = 0, end_s: int = SPAN_S) -> list[bytes]:
    """Export requests with about so many records in a stretch of time."""
    requests = []
    for _ in range(rng.randrange(3, 7)):
        resource = {"service.name": rng.choice(SERVICES), "cloud.region": rng.choice(REGIONS)}
        records = [_record(rng, begin_s, end_s) for _ in range(rng.randrange(1, max(2, size // 3)))]
        # The same record twice: LogQL sees one, and so does a rule.
        records += rng.sample(records, rng.randrange(0, 3) % (len(records) + 1))
        requests.append(
            json.dumps(
                {
                    "resourceLogs": [
                        {
                            "resource": {"attributes": _pairs(resource)},
                            "scopeLogs": [{"scope": {}, "logRecords": records}],
                        }
                    ]
                }
            ).encode()
        )
    return requests


def _record(rng: random.Random, begin_s: int, end_s: int) -> dict[str, Any]:
    edge_ns = rng.randrange(begin_s // 10, end_s // 10 + 1) * 10 * SECOND_NS
    anywhere_ns = rng.randrange(begin_s * SECOND_NS, end_s * SECOND_NS)
    time_ns = rng.choice((edge_ns, edge_ns + 1, edge_ns - 1, *(anywhere_ns,) * 5))
    fields = {
        "status": rng.choice(STATUSES),
        "took": rng.choice((rng.randrange(0, 500), round(rng.uniform(-2, 2), 3), "soon")),
        "host": rng.choice(("h1", "h2", "")),
        "service_name": "parsed",
        "msg": rng.choice(WORDS),
    }
    chosen = {name: fields[name] for name in fields if rng.random() < 0.8}
    logfmt = " ".join(f"{name}={json.dumps(value)}" for name, value in chosen.items())
    text = f"{rng.choice(WORDS)} {rng.choice(STATUSES)}"
    body = rng.choice((*(json.dumps(chosen),) * 8, logfmt, text, '{"status": "500", "cut'))
    attributes = {
        "route": rng.choice(ROUTES),
        "size": rng.choice((1, 17, 250, None)),
        "host": rng.choice((None, "own")),
    }
    level = rng.choice(LEVELS)
    return {
        "timeUnixNano": str(START_NS + max(time_ns, 0)),
        "body": {"stringValue": body},
        "attributes": _pairs(attributes),
        **({} if level is None else {"severityText": level}),
    }


def _pairs(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in values.items() if value is not None]


def _any_value(value: Any) -> dict[str, Any]:
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
