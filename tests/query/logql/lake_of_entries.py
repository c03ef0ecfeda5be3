"""Log records of several services on the real way into a lake, for tests that query them."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from typing import Any

from tests.query.ingesting import ingest
from tests.query.lake_of_series import LakeOfSeries

START_NS = 1_790_000_000_000_000_000
MINUTE_NS = 60_000_000_000
MINUTES, PER_MINUTE = 30, 8
WORDS = ("timeout", "ok", "refused", "naïve", "päge", "a\\b", 'say "hi"', "id-4711")


def requests(seed: int = 0, minutes: int = MINUTES, per_minute: int = PER_MINUTE) -> Iterator[bytes]:
    """One export request per service and minute. The lines of a service are JSON, logfmt or text."""
    rng = random.Random(seed)
    for minute in range(minutes):
        for service in ("web", "cart", "jobs", None):
            records = [_record(rng, service, START_NS + minute * MINUTE_NS, number) for number in range(per_minute)]
            resource = {"k8s.pod.name": f"{service}-{minute % 2}", "cloud.region": "eu", "host.name": "h1"}
            if service is not None:
                resource["service.name"] = service
            scope = {"name": "lib", "attributes": _pairs({"library": "x"})}
            yield json.dumps(
                {
                    "resourceLogs": [
                        {
                            "resource": {"attributes": _pairs(resource)},
                            "scopeLogs": [{"scope": scope, "logRecords": records}],
                        }
                    ]
                }
            ).encode()


def _record(rng: random.Random, service: str | None, minute_ns: int, number: int) -> dict[str, Any]:
    word, status, took = rng.choice(WORDS), rng.choice((200, 404, 500)), rng.randrange(1, 3000)
    fields = {"msg": word, "status": status, "took": f"{took}ms", "host": rng.choice(("h1", "h2"))}
    if service == "web":
        body = json.dumps(fields, ensure_ascii=rng.random() < 0.5) if rng.random() < 0.9 else '{"msg": "cut'
    elif service == "cart":
        body = " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items())
    else:
        body = rng.choice((f"{word} {status}", f"GET /p{number} {status}", "", f"two\nlines {word}"))
    attributes: dict[str, Any] = {"status": status, "Route.Name": f"/r{number % 3}", "ratio": status / 7}
    if rng.random() < 0.3:
        attributes = {"user.id": f"u{rng.randrange(5)}", "host.name": "own"}
    # Some records of a minute have the same time.
    time_ns = minute_ns + rng.choice((0, 1, 17, rng.randrange(MINUTE_NS)))
    severity = rng.choice(({}, {"severityText": "ERROR"}, {"severityNumber": 9}, {"severityText": "Information"}))
    trace = {"traceId": f"{rng.randrange(1, 1 << 64):032x}"} if rng.random() < 0.5 else {}
    return {
        "timeUnixNano": str(time_ns),
        "body": {"stringValue": body},
        "attributes": _pairs(attributes),
        **severity,
        **trace,
    }


def _pairs(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in values.items()]


def _any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def write_entries(lake: LakeOfSeries) -> uuid.UUID:
    """Several objects, so that segments overlap in time."""
    org_id = uuid.uuid4()
    for seed in range(3):
        ingest(lake, org_id, list(requests(seed)))
    return org_id
