"""Options for decoding an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakerunner.formats.detect import Format
from lakerunner.formats.mappings import ObjectMapping, mapping_of, parse_mappings
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
    #: The time of the object, for rows without one; such rows are counted. With None they are rejected.
    fallback_time_ns: int | None = None
    #: Our field (`timestamp`, `message`, ...) -> the key or column that holds it, tried before the well-known keys.
    fields: Mapping[str, str] = field(default_factory=dict)
    #: The format; None means that the content decides.
    format: Format | None = None
    #: Fields and formats by prefix. `for_object` chooses.
    mappings: tuple[ObjectMapping, ...] = ()

    def for_object(self, bucket: str, key: str, modified_ns: int | None) -> Options:
        """Return the options for one object. Its time is None where no row may have it."""
        options = replace(self, fallback_time_ns=modified_ns)
        mapping = mapping_of(self.mappings, bucket, key)
        if mapping is None:
            return options
        return replace(options, fields={**self.fields, **mapping.fields}, format=mapping.format or self.format)


def options_of(settings: FormatsSettings) -> Options:
    """Return the options from the settings."""
    promoted = tuple(name.strip() for name in settings.promote_resource.split(",") if name.strip())
    return Options(
        metrics=MetricOptions(promoted_resource_attributes=promoted), mappings=parse_mappings(settings.mapping)
    )
