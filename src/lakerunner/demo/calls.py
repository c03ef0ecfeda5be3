"""The vocabulary of journeys: calls over HTTP and gRPC, database queries, messages, and how they fail."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from lakerunner.demo.wire import Attribute, Varying


class Kind(IntEnum):
    """Span kinds, numbered as in OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """How a step fails."""

    type: str
    message: str
    http_status: int = 500
    rpc_status: int = 13
    #: A customer's mistake, such as a wrong password. It is not an error of the span, and no release makes it more
    #: frequent.
    customers: bool = False
    #: Frequency as a multiple of the service's failure rate; for a customer's mistake, the share of requests.
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Call:
    """A node in the call tree of a journey."""

    service: str | None
    name: str
    kind: Kind
    #: Median duration without the calls below it.
    own_ms: float
    attributes: tuple[Attribute, ...] = ()
    calls: tuple[Call, ...] = ()
    fault: Fault | None = None
    #: Whether the caller carries on without the answer if this call fails.
    optional: bool = False
    #: http, grpc, db, kafka, or empty.
    protocol: str = ""


def http(service: str, method: str, route: str, own_ms: float, *calls: Call, fault: Fault | None = None) -> Call:
    pairs: tuple[Attribute, ...] = (
        ("http.request.method", method),
        ("http.route", route),
        ("url.scheme", "https"),
        ("server.address", f"{service}.shop.svc"),
        ("network.protocol.version", "1.1"),
        ("client.address", "<ip>"),
        ("http.response.body.size", Varying("size")),
    )
    return Call(service, f"{method} {route}", Kind.SERVER, own_ms, pairs, calls, fault, protocol="http")


def grpc(
    service: str, api: str, method: str, own_ms: float, *calls: Call, fault: Fault | None = None, optional: bool = False
) -> Call:
    pairs: tuple[Attribute, ...] = (
        ("rpc.system", "grpc"),
        ("rpc.service", f"shop.{api}"),
        ("rpc.method", method),
        ("server.address", f"{service}.shop.svc"),
        ("server.port", 8080),
    )
    return Call(service, f"shop.{api}/{method}", Kind.SERVER, own_ms, pairs, calls, fault, optional, "grpc")


def database(
    system: str, operation: str, target: str, statement: str, own_ms: float, fault: Fault | None = None
) -> Call:
    pairs: tuple[Attribute, ...] = (
        ("db.system.name", system),
        ("db.namespace", "shop"),
        ("db.collection.name", target),
        ("db.operation.name", operation),
        ("db.query.text", statement),
        ("server.address", f"{system}.shop.svc"),
    )
    return Call(None, f"{operation} {target}", Kind.CLIENT, own_ms, pairs, (), fault, protocol="db")


def internal(name: str, own_ms: float, *pairs: Attribute) -> Call:
    return Call(None, name, Kind.INTERNAL, own_ms, pairs)


def publish(topic: str, own_ms: float) -> Call:
    pairs: tuple[Attribute, ...] = (
        ("messaging.system", "kafka"),
        ("messaging.operation.type", "send"),
        ("messaging.destination.name", topic),
        ("messaging.message.body.size", Varying("size")),
    )
    return Call(None, f"send {topic}", Kind.PRODUCER, own_ms, pairs, protocol="kafka")


def consume(service: str, topic: str, own_ms: float, *calls: Call, fault: Fault | None = None) -> Call:
    pairs: tuple[Attribute, ...] = (
        ("messaging.system", "kafka"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", topic),
        ("messaging.consumer.group.name", service),
        ("shop.order.id", "<order>"),
    )
    return Call(service, f"process {topic}", Kind.CONSUMER, own_ms, pairs, calls, fault, protocol="kafka")
