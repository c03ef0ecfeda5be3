"""The queries: typical dashboard queries, each over one data set, with a target."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.promql.sets import END_MS, HOUR_MS, JOBS

Fields = tuple[tuple[str, str], ...]


class Target(enum.Enum):
    """The target of a hot query: the share of Prometheus' time, or milliseconds of wall time."""

    HALF = (0.5, None)
    #: Only where Prometheus takes long.
    SAME = (1.0, None)
    SMALL_INSTANT = (None, 4.0)
    SMALL_RANGE = (None, 8.0)

    @property
    def most_ratio(self) -> float | None:
        return self.value[0]

    @property
    def most_ms(self) -> float | None:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    path: str
    fields: Fields
    target: Target = Target.SAME
    #: Whether to run it on VictoriaMetrics, which has no native histograms.
    victoria: bool = True
    #: Any of several series with equal values may be returned, so only the values per step are compared.
    any_of_equals: bool = False


def cases() -> list[Case]:
    one, job = '{pod="pod-77"}', f'{{job="job-{JOBS // 2}"}}'
    rate = "sum by (job) (rate(requests_total[5m]))"
    return [
        _instant("instant one series", f"requests_total{one}", Target.SMALL_INSTANT),
        _instant("instant sum of one job", f"sum by (job) (requests_total{job})", Target.SMALL_RANGE),
        _instant("instant sum by job", "sum by (job) (requests_total)"),
        _range("range one series 1h", f"requests_total{one}", 1, 10, Target.SMALL_RANGE),
        _range("range rate of one series 1h", f"rate(requests_total{one}[5m])", 1, 10, Target.SMALL_RANGE),
        _range("long sum by rate 1h", rate, 1, 10, Target.HALF),
        _range("long sum by rate 6h", rate, 6, 60, Target.HALF),
        _range("wide sum by rate 1h", "sum by (job) (rate(events_total[5m]))", 1, 60, Target.HALF),
        _range("classic quantile 1h", f"histogram_quantile(0.99, {_rate('job, le', 'latency_seconds_bucket')})", 1, 30),
        _range("classic quantile 6h", f"histogram_quantile(0.99, {_rate('job, le', 'latency_seconds_bucket')})", 6, 60),
        _range("native quantile 1h", f"histogram_quantile(0.99, {_rate('job', 'size_bytes')})", 1, 60, victoria=False),
        replace(_range("topk 1h", "topk(5, rate(requests_total[5m]))", 1, 60), any_of_equals=True),
        _range("avg_over_time 1h", "sum by (job) (avg_over_time(memory_bytes[5m]))", 1, 60),
        _range("max by 1h", "max by (job) (memory_bytes)", 1, 10),
        _range("max by 6h", "max by (job) (memory_bytes)", 6, 60),
        _range("quotient of sums 1h", f"{rate} / sum by (job) (memory_bytes)", 1, 60),
        _range("select 10k series 1h", "requests_total", 1, 60),
        _instant("select 100k series instant", "events_total"),
        _list("label values job", "/api/v1/label/job/values", (("match[]", "requests_total"),), Target.SMALL_RANGE),
        _list("label values pod", "/api/v1/label/pod/values", (("match[]", "requests_total"),)),
        _list("series of one job", "/api/v1/series", (("match[]", f"requests_total{job}"),)),
    ]  # fmt: skip


def _rate(by: str, metric: str) -> str:
    return f"sum by ({by}) (rate({metric}[5m]))"


def _instant(name: str, query: str, target: Target = Target.SAME) -> Case:
    return Case(name, "/api/v1/query", (("query", query), ("time", _seconds(END_MS))), target)


def _range(
    name: str, query: str, hours: int, step_s: int, target: Target = Target.SAME, *, victoria: bool = True
) -> Case:
    return Case(name, "/api/v1/query_range", range_fields(query, hours, step_s), target, victoria)


def range_fields(query: str, hours: int, step_s: int) -> Fields:
    return (
        ("query", query),
        ("start", _seconds(END_MS - hours * HOUR_MS)),
        ("end", _seconds(END_MS)),
        ("step", str(step_s)),
    )


def _list(name: str, path: str, fields: Fields, target: Target = Target.SAME) -> Case:
    return Case(name, path, (*fields, ("start", _seconds(END_MS - HOUR_MS)), ("end", _seconds(END_MS))), target)


def _seconds(time_ms: int) -> str:
    return str(time_ms // 1000)


def chosen(names: Sequence[str], among: str) -> bool:
    """Return whether a case was selected. Without a selection, all are."""
    return not names or any(name in among for name in names)
