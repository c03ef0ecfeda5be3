"""The queries: what people ask of logs, each with its target against Loki's CPU time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.logql.records import ABSENT, NEEDLE, NEEDLE_TRACE, RANGE_S, START_NS

from lakerunner.model.time import NS_PER_S

_NEWEST = "| sort by (_time desc) limit 100"
_LOGSQL = {
    "last 100 of a service": f'{{service.name="pay-api"}} {_NEWEST}',
    "needle": f'"{NEEDLE}" {_NEWEST}',
    "absent needle": f'"{ABSENT}" {_NEWEST}',
    "trace id": f'trace_id:="{NEEDLE_TRACE.hex()}" {_NEWEST}',
    "id in a field": f'user.id:="u-777" {_NEWEST}',
    "rare regexp with a literal": f'_msg:~"payment-00000[0-9]{{2}} of" {_NEWEST}',
    "rare regexp without a literal": f'_msg:~"[a-z]{{6}}-0{{4}}[0-9]+ " {_NEWEST}',
    "count by level": "* | stats by (_time:1m, severity) count()",
    "count by level with a needle": "card | stats by (_time:1m, severity) count()",
    "count by regexp": '_msg:~"u-1[0-9]+ in 9" | stats by (_time:1m) count()',
    "volume histogram": '{service.name="pay-api"} | stats by (_time:1m, severity) count()',
    "json parse and aggregate": (
        '{service.name="pay-api"} "order handled" | unpack_json | filter latency_ms:>50 '
        "| stats by (_time:5m, order.region) count()"
    ),
    "group by 20,000 values": "* | stats by (user.id) count()",
    "top 10": "* | top 10 by (user.id)",
    "quantile of a field": "* | stats by (_time:5m, service.name) quantile(0.99, duration_ms)",
}
Fields = tuple[tuple[str, str], ...]
_ALL, _ONE = '{service_namespace="shop"}', '{service_name="pay-api"}'


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    path: str
    fields: Fields
    #: At most this share of Loki's CPU time.
    most_cpu: float | None = None
    #: Several series may have equal values, so which of them are shown is not compared.
    any_of_equals: bool = False
    #: The same question in the language of VictoriaLogs.
    logsql: str = ""


#: Path and fields of a request that counts all records.
COUNT_ALL = (
    "/loki/api/v1/query",
    (("query", f"sum(count_over_time({_ALL}[2h]))"), ("time", str(START_NS + 2 * RANGE_S * NS_PER_S - NS_PER_S))),
)


def cases() -> list[Case]:
    return [replace(case, logsql=_LOGSQL[case.name]) for case in _cases()]


def _cases() -> list[Case]:
    return [
        _logs("last 100 of a service", _ONE, 0.03),
        _logs("needle", f'{_ALL} |= "{NEEDLE}"', 0.03),
        _logs("absent needle", f'{_ALL} |= "{ABSENT}"', 0.005),
        _logs("trace id", f'{_ALL} | trace_id="{NEEDLE_TRACE.hex()}"', 0.003),
        _logs("id in a field", f'{_ALL} | user_id="u-777"'),
        _logs("rare regexp with a literal", f'{_ALL} |~ "payment-00000[0-9]{{2}} of"', 0.25),
        _logs("rare regexp without a literal", f'{_ALL} |~ "[a-z]{{6}}-0{{4}}[0-9]+ "', 0.25),
        _steps("count by level", f"sum by (detected_level) (count_over_time({_ALL}[1m]))", 0.01),
        _steps("count by level with a needle", f'sum by (detected_level) (count_over_time({_ALL} |= "card" [1m]))'),
        _steps("count by regexp", f'sum (count_over_time({_ALL} |~ "u-1[0-9]+ in 9" [1m]))', 0.25),
        _steps(
            "volume histogram", f'sum by (level, detected_level) (count_over_time({_ONE} |= "" | drop __error__ [1m]))'
        ),
        _steps(
            "json parse and aggregate",
            f'sum by (order_region) (count_over_time({_ONE} |= "order handled" | json | latency_ms > 50 [5m]))',
        ),
        _instant("group by 20,000 values", f"sum by (user_id) (count_over_time({_ALL}[1h]))", 0.01),
        _instant("top 10", f"topk(10, sum by (user_id) (count_over_time({_ALL}[1h])))", any_of_equals=True),
        _steps("quantile of a field", f"quantile_over_time(0.99, {_ALL} | unwrap duration_ms [5m]) by (service_name)"),
    ]


def _logs(name: str, query: str, most_cpu: float | None = None) -> Case:
    return Case(name, "/loki/api/v1/query_range", (*_range(query), ("limit", "100")), most_cpu)


def _steps(name: str, query: str, most_cpu: float | None = None) -> Case:
    return Case(name, "/loki/api/v1/query_range", (*_range(query), ("step", "60")), most_cpu)


def _instant(name: str, query: str, most_cpu: float | None = None, *, any_of_equals: bool = False) -> Case:
    fields = (("query", query), ("time", str(_end_ns())))
    return Case(name, "/loki/api/v1/query", fields, most_cpu, any_of_equals)


def _range(query: str) -> Fields:
    return (("query", query), ("start", str(START_NS)), ("end", str(_end_ns())))


def _end_ns() -> int:
    return START_NS + RANGE_S * NS_PER_S
