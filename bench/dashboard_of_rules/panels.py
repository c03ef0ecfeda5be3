"""The rules, and the panels that ask what they keep."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.model.compute import Compute
from lakerunner.rules.definitions import Materialize

ALL = '{service_name=~".+"}'
BY_ROUTE = ("service_name", "http_route")
SIZE = "http_response_body_size"

RULES = (
    Materialize("lines_total", "logs", ALL, ("service_name", "detected_level")),
    Materialize("routes_total", "logs", ALL, BY_ROUTE),
    Materialize("line_bytes_total", "logs", ALL, ("service_name",), Compute.BYTES),
    Materialize("failed_total", "logs", f'{ALL} |= "failed"', BY_ROUTE),
    Materialize("body_bytes_total", "logs", ALL, BY_ROUTE, Compute.SUM, SIZE),
    Materialize("body_bytes_max", "logs", ALL, BY_ROUTE, Compute.MAX, SIZE),
)


def panels(window: str) -> tuple[str, ...]:
    """The queries, with a range that is as long as the step, as Grafana's `$__auto` is, or an hour."""
    w = window
    by_service = f"sum by (service_name) (rate({ALL}[{w}]))"
    return (
        f"sum(rate({ALL}[{w}]))",
        by_service,
        f"sum by (detected_level) (count_over_time({ALL}[{w}]))",
        f"sum by (http_route) (count_over_time({ALL}[{w}]))",
        f"sum by (service_name, detected_level) (count_over_time({ALL}[{w}]))",
        f'sum(count_over_time({{service_name="frontend"}}[{w}]))',
        f'sum by (http_route) (rate({{service_name="frontend"}}[{w}]))',
        f'sum by (detected_level) (rate({{service_name=~"cart|checkout"}}[{w}]))',
        f'sum(rate({ALL} | detected_level="error" [{w}])) / sum(rate({ALL}[{w}]))',
        f'sum by (service_name) (rate({ALL} | detected_level="error" [{w}])) / {by_service}',
        f"topk(5, sum by (http_route) (count_over_time({ALL}[1h])))",
        f"sum by (service_name) (bytes_rate({ALL}[{w}]))",
        f"sum(bytes_over_time({ALL}[1h]))",
        f'sum(count_over_time({ALL} |= "failed" [{w}]))',
        f'sum by (service_name) (count_over_time({ALL} |= "failed" [{w}]))',
        f'topk(3, sum by (service_name) (rate({ALL} |= "failed" [{w}])))',
        f"sum by (service_name) (sum_over_time({ALL} | unwrap {SIZE} [{w}]))",
        f"sum(sum_over_time({ALL} | unwrap {SIZE} [{w}])) / sum(count_over_time({ALL}[{w}]))",
        f"max by (http_route) (max_over_time({ALL} | unwrap {SIZE} [{w}]))",
        f'max(max_over_time({{service_name="frontend"}} | unwrap {SIZE} [{w}]))',
    )


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel, by rules or from raw rows."""

    text: str
    start_ns: int
    end_ns: int
    step_s: int
    by_rules: bool

    path = "/loki/api/v1/query_range"

    @property
    def fields(self) -> list[tuple[str, str]]:
        return [
            ("query", self.text),
            ("start", str(self.start_ns)),
            ("end", str(self.end_ns)),
            ("step", str(self.step_s)),
            ("rewrite", "1" if self.by_rules else "0"),
        ]
