"""Options for decoding an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakerunner.runtime.settings import FormatsSettings


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """How OTLP metrics become Prometheus series."""

    #: Resource attributes that become labels of every series of the resource.
    promoted_resource_attributes: tuple[str, ...] = ()
    #: Whether otel_scope_name, otel_scope_version and the scope's attributes become labels.
    promote_scope: bool = False
    #: Whether to derive `target_info`, the series that carries the other resource attributes.
    target_info: bool = True
    #: Interval between samples of `target_info`: half of the query look-back, as in Prometheus.
    target_info_step_ms: int = 150_000
    #: The secret key of series ids, which all objects of a lake must share.
    series_key: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Options:
    metrics: MetricOptions = field(default_factory=MetricOptions)
    #: Timestamp for rows without one (the time of the object). With None, rows without a timestamp are rejected.
    fallback_time_ns: int | None = None
    #: Our field (`timestamp`, `message`, ...) -> the key or column that holds it, tried before the well-known keys.
    fields: Mapping[str, str] = field(default_factory=dict)


def options_of(settings: FormatsSettings) -> Options:
    """Return the options from the settings."""
    promoted = tuple(name.strip() for name in settings.promote_resource.split(",") if name.strip())
    return Options(metrics=MetricOptions(promoted_resource_attributes=promoted))
