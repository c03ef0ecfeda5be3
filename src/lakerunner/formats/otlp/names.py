"""Translate OTLP metric names as Prometheus does: allowed characters, unit, `_total`, `_ratio`.

https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
"""

from __future__ import annotations

import functools
import re

_SEPARATORS = re.compile(r"[^a-zA-Z0-9:]+")
_UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",  # sic: Prometheus spells it so
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
_PER = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}


@functools.lru_cache(maxsize=65_536)
def metric_name(name: str, unit: str, *, monotonic: bool = False, gauge: bool = False) -> str:
    """Return the Prometheus name, or "" if the name has no valid character.

    >>> metric_name("http.server.duration", "ms")
    'http_server_duration_milliseconds'
    >>> metric_name("system.disk.io", "By/s", monotonic=True), metric_name("cpu.utilization", "1", gauge=True)
    ('system_disk_io_bytes_per_second_total', 'cpu_utilization_ratio')
    """
    tokens = [token for token in _SEPARATORS.split(name) if token]
    main, per = _unit_words(unit)
    per = "" if per == "per_" else per.removesuffix("_")
    main = "" if main in tokens else main
    per = "" if per in tokens else per
    if per:
        main = main.removesuffix("_")
    tokens += [word for word in (main, per) if word]
    if monotonic:
        tokens = [*(token for token in tokens if token != "total"), "total"]
    if unit == "1" and gauge:
        tokens = [*(token for token in tokens if token != "ratio"), "ratio"]
    joined = "_".join(tokens)
    if joined != name and not joined.strip("_"):
        return ""
    return f"_{joined}" if joined[:1].isdecimal() else joined


def _unit_words(unit: str) -> tuple[str, str]:
    """Return the suffixes of a unit before and after the slash. A unit in braces is an annotation and has none."""
    main, _, per = unit.partition("/")
    main, per = main.strip(), per.strip()
    main = "" if "{" in main or "}" in main else _UNITS.get(main, main)
    per = "" if "{" in per or "}" in per else _PER.get(per, per)
    return _clean(main), _clean(f"per_{per}" if per else "")


def _clean(word: str) -> str:
    return _SEPARATORS.sub("_", word).removeprefix("_")
