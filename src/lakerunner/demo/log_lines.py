"""The log lines of services, by step and outcome, and those written between requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

from lakerunner.demo.calls import Kind
from lakerunner.demo.shop import INDEX, SERVICES
from lakerunner.demo.steps import Step
from lakerunner.demo.wire import Attribute, Varying

#: Requests that take longer log a warning.
SLOW_NS = 1_000_000_000


class Severity(IntEnum):
    """Severities, numbered as in OTLP."""

    DEBUG = 5
    INFO = 9
    WARN = 13
    ERROR = 17
    FATAL = 21


@dataclass(frozen=True, slots=True, eq=False)
class LogLine:
    """One kind of log record. `<name>` in a text is a placeholder; a mapping is a structured body.

    Compared by identity, because it is a dictionary key many times per slot.
    """

    severity: Severity
    body: str | Mapping[str, str | int | Varying]
    attributes: tuple[Attribute, ...] = ()
    #: Probability that the line is written; for background lines, its relative frequency.
    share: float = 1.0
    #: Time of the line, as a fraction of the step's duration.
    at: float = 1.0
    #: Written only if the step took longer than this.
    slower_than_ns: int = 0


_USER: Attribute = ("enduser.id", "user-<user>")
_PRODUCT: Attribute = ("shop.product.id", "<product>")
_ORDER: Attribute = ("shop.order.id", "<order>")

_JSON_CHARGE = (
    '{"event":"charge","order":"<order>","amount":<amount>,"currency":"EUR","card":{"brand":"visa","last4":"<count>7"},'
    '"trace_id":"<trace>","took_s":<seconds>}'
)

#: By service and span name: the lines of a successful step.
_DOMAIN: dict[tuple[str, str], tuple[LogLine, ...]] = {
    ("frontend", "GET /product/{id}"): (
        LogLine(Severity.INFO, "user-<user> views product <product>", (_USER, _PRODUCT), 0.5, 0.1),
    ),
    ("frontend", "POST /checkout"): (
        LogLine(Severity.INFO, "checkout finished for user-<user> in <seconds>s", (_USER, _ORDER)),
    ),
    ("auth", "POST /v1/token"): (
        LogLine(Severity.INFO, "issued token for user-<user>, session <session>", (_USER, ("session.id", "<session>"))),
    ),
    ("auth", "shop.Auth/Verify"): (LogLine(Severity.DEBUG, "session <session> is valid", (), 0.3, 0.5),),
    ("cart", "shop.Cart/AddItem"): (
        LogLine(Severity.INFO, "Added product <product> to the cart of user-<user>", (_USER, _PRODUCT), 1.0, 0.8),
    ),
    ("cart", "shop.Cart/GetCart"): (
        LogLine(Severity.DEBUG, "GetCart called with userId=user-<user>", (_USER,), 0.5, 0.0),
    ),
    ("catalogue", "shop.Catalogue/GetProduct"): (
        LogLine(Severity.DEBUG, "cache miss for product <product>, reading from database", (_PRODUCT,), 0.2, 0.4),
    ),
    ("checkout", "shop.Checkout/PlaceOrder"): (
        LogLine(Severity.INFO, "[PlaceOrder] user_id=user-<user> user_currency=EUR", (_USER,), 1.0, 0.02),
        LogLine(
            Severity.INFO, "order <order> placed, total <amount> EUR", (_ORDER, ("shop.order.total", Varying("price")))
        ),
    ),
    ("inventory", "shop.Inventory/Reserve"): (
        LogLine(Severity.INFO, "reserved <count> of <product>", (_PRODUCT,), 1.0, 0.9),
        LogLine(Severity.WARN, "stock of <product> is low: <count> left", (_PRODUCT,), 0.1, 0.95),
    ),
    ("orders", "shop.Orders/Create"): (
        LogLine(
            Severity.INFO,
            {"event": "order.created", "order": "<order>", "customer": "user-<user>", "bytes": Varying("size")},
            (_ORDER,),
        ),
    ),
    ("payment", "POST /v1/charges"): (LogLine(Severity.INFO, _JSON_CHARGE, (_ORDER,)),),
    ("recommendations", "shop.Recommendations/List"): (
        LogLine(Severity.INFO, "Recommending <count> products to user-<user> model=als-v12", (_USER,), 0.3, 0.9),
    ),
    ("search", "POST /v1/query"): (
        LogLine(Severity.INFO, "query=[name:<product>] hits=<count> status=0 QTime=<seconds>", (), 0.8, 0.9),
    ),
    ("shipping", "process orders.placed"): (
        LogLine(Severity.INFO, "parcel for order <order> handed to parcel-one", (_ORDER,), 1.0, 0.9),
    ),
    ("email", "process orders.placed"): (
        LogLine(Severity.INFO, "Order confirmation email sent to: user-<user>@example.com", (_USER, _ORDER), 1.0, 0.95),
    ),
}

#: Lines that any service writes between requests, without a trace.
BACKGROUND: tuple[LogLine, ...] = (
    LogLine(
        Severity.DEBUG, "GET /healthz 200 from <ip>", (("http.route", "/healthz"), ("client.address", "<ip>")), 6.0
    ),
    LogLine(Severity.INFO, "cache refreshed: <count> entries in <seconds>s", (), 2.0),
    LogLine(Severity.INFO, "GC pause <seconds>s, heap <count> MiB", (("gc.generation", "young"),), 2.0),
    LogLine(Severity.INFO, "connection pool: <count> idle, 004 in use", (("pool.name", "main"),), 1.0),
    LogLine(Severity.WARN, "clock skew of <seconds>s against <ip>", (), 0.15),
    LogLine(Severity.WARN, "retrying export of telemetry after <seconds>s: deadline exceeded", (), 0.3),
    LogLine(Severity.ERROR, "cannot renew lease of leader election: <ip> does not answer", (), 0.05),
    LogLine(Severity.FATAL, "out of memory: <count> MiB over the limit, exiting", (), 0.005),
)


@cache
def lines_of_step(step: Step) -> tuple[LogLine, ...]:
    """Return all lines that the step may write."""
    lines: list[LogLine] = []
    if step.failure is None:
        lines.extend(_DOMAIN.get((SERVICES[step.service].name, step.name), ()) if step.kind is not Kind.CLIENT else ())
    else:
        lines.extend(_failure_lines(step))
    if step.kind is Kind.SERVER:
        lines.append(_access_line(step))
        slow: tuple[Attribute, ...] = (("shop.slow", True), ("code.function", step.name))
        lines.append(LogLine(Severity.WARN, f"slow request: {step.name} took <seconds>s", slow, slower_than_ns=SLOW_NS))
    elif step.protocol == "db":
        pairs: tuple[Attribute, ...] = (("db.operation.name", step.name.split()[0]),)
        lines.append(LogLine(Severity.DEBUG, f"{step.name} returned <count> rows in <seconds>s", pairs, 0.25))
    return tuple(lines)


def _access_line(step: Step) -> LogLine:
    severity = Severity.ERROR if step.is_error else Severity.INFO
    if step.protocol == "grpc":
        return LogLine(severity, f"finished call {step.name} code={step.status} duration=<seconds>s peer=<ip>")
    method, route = step.name.split()
    pairs: tuple[Attribute, ...] = (
        ("http.request.method", method),
        ("http.route", route),
        ("http.response.status_code", step.status),
        ("http.response.body.size", Varying("size")),
        ("client.address", "<ip>"),
    )
    severity = Severity.WARN if severity is Severity.INFO and step.status >= 400 else severity
    return LogLine(severity, f'<ip> - user-<user> "{method} {route} HTTP/1.1" {step.status} <seconds>', pairs)


def _failure_lines(step: Step) -> list[LogLine]:
    failure = step.failure
    if failure is None:
        return []
    severity = Severity.WARN if failure.customers else Severity.ERROR
    if step.failed_here:
        pairs: tuple[Attribute, ...] = (
            ("exception.type", failure.type),
            ("exception.message", failure.message),
            ("exception.stacktrace", stacktrace(step)),
            _USER,
        )
        return [LogLine(severity, f"{step.name} failed: {failure.message}", pairs, 1.0, 0.98)]
    if step.kind is Kind.SERVER:
        return [LogLine(severity, f"{step.name} cannot be answered: {failure.type} upstream", (_USER,), 1.0, 0.99)]
    return []


def stacktrace(step: Step) -> str:
    """Return a stack trace of no particular language, with files and line numbers."""
    failure = step.failure
    service = SERVICES[step.service].name
    head = f"{failure.type}: {failure.message}" if failure else ""
    places = ("handler.invoke", "middleware.trace", "server.serve")
    return "\n".join(
        (head, *(f"  at shop.{service}.{place} ({place}:{40 + INDEX[service] * 7 + len(place)})" for place in places))
    )


def expected(step: Step) -> float:
    """Return the mean number of lines that the step writes at ordinary speed."""
    return sum(line.share for line in lines_of_step(step) if not line.slower_than_ns)
