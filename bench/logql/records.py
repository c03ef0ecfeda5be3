"""OTLP log records of a shop, the same for every server: an hour of access logs, JSON lines and payments."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from bench.otlp import ROUTES, SERVICES, pairs, resource
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from lakerunner.model.time import NS_PER_S

START_NS = 1_763_200_800 * NS_PER_S
RANGE_S = 3_600
#: Records of one object.
OBJECT_ROWS = 10_000
#: In exactly one record, and in none.
NEEDLE, ABSENT = "ticket-7f3a9c21e5", "ticket-0b64d1889e"
NEEDLE_TRACE = bytes(range(16))
USERS = 20_000


def objects(count: int) -> Iterator[bytes]:
    """Yield export requests with so many records in all, in order of time."""
    numbers = range(count // OBJECT_ROWS)
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(partial(_request, of=len(numbers)), numbers)


def _request(number: int, of: int) -> bytes:
    rng = random.Random(number)
    share = OBJECT_ROWS // len(SERVICES)
    span_ns = RANGE_S * NS_PER_S // of
    first_ns = START_NS + number * span_ns
    batch = LogsData()
    for service in SERVICES:
        records = batch.resource_logs.add(resource=resource(service, rng.randrange(4))).scope_logs.add()
        records.scope.name = "shop.logging"
        trace_id = rng.randbytes(16)
        for i in range(share):
            if i % 5 == 0:
                trace_id = rng.randbytes(16)
            route, status = rng.choice(ROUTES), rng.choice((200, 200, 200, 200, 201, 404, 500))
            user, spent_ms = f"u-{rng.randrange(USERS)}", round(rng.expovariate(0.05), 2)
            at_ns = first_ns + span_ns * i // share + rng.randrange(span_ns // share)
            is_needle = number == of // 3 and service == SERVICES[4] and i == share // 2
            record = records.log_records.add(
                time_unix_nano=at_ns,
                observed_time_unix_nano=at_ns + 300_000,
                severity_text="ERROR" if status == 500 else "WARN" if status == 404 else "INFO",
                severity_number=17 if status == 500 else 13 if status == 404 else 9,
                attributes=pairs(
                    {
                        "http.request.method": "GET",
                        "http.route": route,
                        "http.response.status_code": status,
                        "duration_ms": spent_ms,
                        "user.id": user,
                        "thread.name": f"pool-1-thread-{rng.randrange(32)}",
                    }
                ),
                trace_id=NEEDLE_TRACE if is_needle else trace_id,
                span_id=rng.randbytes(8),
                flags=1,
            )
            line = _line(rng, i, route, status, user, spent_ms)
            record.body.string_value = f"{line} {NEEDLE}" if is_needle else line
    return batch.SerializeToString()


def _line(rng: random.Random, number: int, route: str, status: int, user: str, spent_ms: float) -> str:
    if number % 10 < 4:
        return f"GET {route} answered {status} for user {user} in {spent_ms} ms"
    if number % 10 < 7:
        order = {"id": rng.randbytes(6).hex(), "items": rng.randrange(1, 9), "region": rng.choice(("eu", "us", "ap"))}
        return json.dumps({"msg": "order handled", "user": user, "latency_ms": spent_ms, "order": order})
    return f"charged payment-{rng.randrange(10_000_000):07} of customer {user} via {rng.choice(('card', 'bank'))}"
