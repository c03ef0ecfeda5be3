"""The built-in rules over spans: calls and latency of operations, and requests between services."""

from __future__ import annotations

from collections.abc import Iterable

from lakerunner.model.labels import attribute_column, prometheus_label
from lakerunner.model.signals.traces import TRACES
from lakerunner.pipeline.derive.rule import Dimension, Kind, Measure, Rule

_KINDS = {
    kind: f"SPAN_KIND_{kind.upper()}"
    for kind in ("unspecified", "internal", "server", "client", "producer", "consumer")
}
_STATUSES = {status: f"STATUS_CODE_{status.upper()}" for status in ("unset", "ok", "error")}
_SECONDS = 1e-9
#: The signal of the table of edges, which `edges.py` makes of spans.
EDGES = "service_graph_edges"


def span_metrics(attributes: Iterable[str] = ()) -> Rule:
    """Calls and latency by service, operation, kind and status, and by these attributes of spans or resources."""
    further = tuple(
        Dimension(prometheus_label(key), attribute_column(prefix, key))
        for prefix, key in (_level_and_key(each) for each in attributes)
    )
    return Rule(
        "span_metrics",
        TRACES.name,
        (
            Dimension("service", "service_name"),
            Dimension("span_name", "name"),
            Dimension("span_kind", "kind", _KINDS),
            Dimension("status_code", "status_code", _STATUSES),
            *further,
        ),
        (
            Measure("traces_spanmetrics_calls_total", Kind.COUNTER, "Spans."),
            Measure(
                "traces_spanmetrics_latency",
                Kind.HISTOGRAM,
                "Duration of spans in seconds.",
                "duration_ns",
                _SECONDS,
                "s",
            ),
        ),
    )


def _level_and_key(text: str) -> tuple[str, str]:
    """
    >>> _level_and_key("resource.k8s.cluster.name"), _level_and_key("http.method")
    (('resource', 'k8s.cluster.name'), ('attr', 'http.method'))
    """
    if text.startswith("resource."):
        return "resource", text.removeprefix("resource.")
    return "attr", text.removeprefix("span.")


SERVICE_GRAPH = Rule(
    "service_graph",
    EDGES,
    (Dimension("client", "client"), Dimension("server", "server"), Dimension("connection_type", "connection_type")),
    (
        Measure("traces_service_graph_request_total", Kind.COUNTER, "Requests between two nodes."),
        Measure(
            "traces_service_graph_request_failed_total",
            Kind.COUNTER,
            "Requests of which the client or the server failed.",
            only=("failed", "true"),
        ),
        Measure(
            "traces_service_graph_request_server_seconds",
            Kind.HISTOGRAM,
            "Duration of requests as the server saw them.",
            "server_ns",
            _SECONDS,
            "s",
        ),
        Measure(
            "traces_service_graph_request_client_seconds",
            Kind.HISTOGRAM,
            "Duration of requests as the client saw them.",
            "client_ns",
            _SECONDS,
            "s",
        ),
    ),
)
