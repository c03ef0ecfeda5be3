"""The records that both servers get: a service for each kind of line, with attributes of every kind.

Numbers are multiples of a quarter, so that sums are exact and do not depend on the order of the entries. No two records
have the same time, because nothing says which of them comes first.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

_NS_PER_S = 1_000_000_000
START_NS = 1_793_527_200 * _NS_PER_S
#: Seconds of the records, one of a random service for each.
SECONDS = 900
END_NS = START_NS + SECONDS * _NS_PER_S

USERS = ("alice", "bob", "zoë", "李雷", "o'neil")
PATHS = ("/", "/cart", "/cart/items", "/login", "/img/a%20b.png")
ADDRESSES = ("10.0.0.1", "10.0.1.7", "192.168.4.20", "2001:db8::1", "::1")
LEVELS = ("debug", "info", "warn", "error")
METHODS = ("GET", "POST", "DELETE")
DURATIONS = ("250us", "3ms", "1.5s", "2m", "1h30m", "soon", "")
SIZES = ("512B", "3KB", "1.5KiB", "20MB", "big", "7")
NUMBERS = ("1", "2.5", "-3", "0", "1e3", "NaN", "x")
PODS = ("pod-0", "pod-1", "pod-2")


def quarter(chance: random.Random, most: int) -> float:
    return chance.randrange(most * 4) / 4


def make_requests(seed: int) -> list[bytes]:
    """Export requests in OTLP JSON, in order of time."""
    chance = random.Random(seed)
    requests = []
    for second in range(SECONDS):
        # Milliseconds that no range and no step of a query ends at.
        time_ns = START_NS + second * _NS_PER_S + chance.randrange(1, 999) * 1_000_000 + 17
        requests.append(json.dumps(_request(chance, time_ns), ensure_ascii=False).encode())
    return requests


def _request(chance: random.Random, time_ns: int) -> dict[str, Any]:
    service = chance.choice([*_SERVICES])
    line, attributes = _SERVICES[service](chance)
    resource = {
        "service.name": service,
        "service.namespace": "shop" if service in ("api", "web") else "back",
        "deployment.environment": chance.choice(("prod", "prod", "canary")),
        "k8s.pod.name": chance.choice(PODS),
        "host.name": f"host-{chance.randrange(2)}",
    }
    record: dict[str, Any] = {
        "timeUnixNano": str(time_ns),
        "body": {"stringValue": line},
        "attributes": _attributes(attributes),
    }
    if service != "text":
        number = chance.choice((5, 9, 9, 13, 17))
        record |= {"severityNumber": number, "severityText": LEVELS[(number - 5) // 4]}
    if chance.random() < 0.3:
        record["traceId"] = f"{chance.getrandbits(128):032x}"
    scope = {"name": "generator", "version": "1"}
    logs = [{"scope": scope, "logRecords": [record]}]
    return {"resourceLogs": [{"resource": {"attributes": _attributes(resource)}, "scopeLogs": logs}]}


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": value}


# -- services ----------------------------------------------------------------------------------------------------------


def _api(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """JSON, nested, now and then broken."""
    body: dict[str, Any] = {
        "level": chance.choice(LEVELS),
        "msg": chance.choice(("order placed", "payment failed", "cart empty", "timeout after 3 tries")),
        "status": chance.choice((200, 201, 404, 500)),
        "latency_ms": quarter(chance, 500),
        "user": {"name": chance.choice(USERS), "id": chance.randrange(20), "vip": chance.random() < 0.2},
        "took": chance.choice(DURATIONS[:-1]),
        "size": chance.choice(SIZES),
        "tags": chance.sample(("a", "b", "c"), 2),
        "none": None,
        "odd key": chance.choice(NUMBERS),
    }
    for key in chance.sample([*body], chance.randrange(4)):
        del body[key]
    line = json.dumps(body, ensure_ascii=False)
    if chance.random() < 0.06:
        line = line[: chance.randrange(len(line))]
    return line, {"http.status_code": chance.choice((200, 404, 500)), "latency_ms": quarter(chance, 300)}


def _db(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """logfmt, now and then broken."""
    pairs = {
        "level": chance.choice(LEVELS),
        "msg": f'"{chance.choice(("slow query", "connection reset", "commit ok"))}"',
        "rows": str(chance.randrange(1000)),
        "took": chance.choice(DURATIONS),
        "size": chance.choice(SIZES),
        "peer": chance.choice(ADDRESSES),
        "ratio": chance.choice(NUMBERS),
        "table": chance.choice(("orders", "users", "")),
    }
    for key in chance.sample([*pairs], chance.randrange(3)):
        del pairs[key]
    parts = [f"{key}={value}" for key, value in pairs.items()]
    if chance.random() < 0.08:
        parts.insert(chance.randrange(len(parts) + 1), chance.choice(("=5", 'open="x', "flag", "a==b")))
    return " ".join(parts), {"db.rows": chance.randrange(50), "slow": chance.random() < 0.5}


def _web(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """An access log."""
    status, size, took = chance.choice((200, 301, 404, 503)), chance.randrange(5000), quarter(chance, 8)
    request = f'"{chance.choice(METHODS)} {chance.choice(PATHS)} HTTP/1.1"'
    line = f"{chance.choice(ADDRESSES)} - {chance.choice(USERS)} {request} {status} {size} {took}"
    return line, {"http.status_code": status, "size": size, "client.address": chance.choice(ADDRESSES)}


def _text(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Words, colours, packed JSON, several lines, nothing."""
    line = chance.choice(
        (
            "worker {} started",
            "ERROR: worker {} failed: exit status 1",
            "\x1b[31mred alert\x1b[0m on {}",
            '{{"_entry": "packed {}", "shard": "s1"}}',
            "Traceback:\n  File x\n  line {}",
            "ログイン {} 🔥",
            "[2026-11-01] INFO {} ok",
            "",
        )
    )
    return line.format(chance.randrange(5)), {"shard": chance.choice(("s1", "s2")), "temp": quarter(chance, 40)}


_SERVICES: dict[str, Callable[[random.Random], tuple[str, dict[str, Any]]]] = {
    "api": _api,
    "db": _db,
    "web": _web,
    "text": _text,
}
SERVICES: Sequence[str] = (*_SERVICES,)
