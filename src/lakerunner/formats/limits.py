"""What one raw object may cost us: beyond a limit it is refused, or cut with a count."""

from __future__ import annotations

from dataclasses import dataclass, fields

from lakerunner.model.errors import LimitHit
from lakerunner.runtime.settings import FormatsSettings

_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The first three refuse the object; the next two a line of it, or the object where it has no lines; the last two
    cut a row. What lands with less, or does not land while its neighbours do, is counted under the limit's name.
    """

    #: As it lies in the bucket.
    compressed_bytes: int = 256 * _MB
    #: After decompression. Arrow's string offsets are 32 bits wide, so it stays well below 2 GiB.
    expanded_bytes: int = 1024 * _MB
    #: Expanded over compressed. Real telemetry reaches about 60; a bomb, 1,000 and more.
    ratio: int = 500
    #: One line of JSON, or the header of a CSV, without its end.
    line_bytes: int = 8 * _MB
    #: Arrays and objects within each other.
    nesting_depth: int = 64
    #: Attributes of one row, of its own (not those of its resource or scope). Later ones are dropped.
    attributes_per_row: int = 1_024
    #: One attribute or message, in bytes of UTF-8. It is cut at a character.
    value_bytes: int = 1 * _MB


def limits_of(settings: FormatsSettings) -> Limits:
    """The limits that the settings ask for."""
    return Limits(**{field.name: getattr(settings, field.name) for field in fields(Limits)})


def refuse(limit: str, allowed: int, what: str) -> LimitHit:
    """The error that names the limit, to be raised."""
    return LimitHit(
        f"cannot read the object: {what}, more than {limit} = {allowed:,} allows",
        hint=f"send smaller objects, or raise formats.{limit}",
    )
