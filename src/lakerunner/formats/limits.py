"""Limits on one raw object. Beyond a limit the object is refused, or a row is cut and counted."""

from __future__ import annotations

from dataclasses import dataclass, fields

from lakerunner.formats.decoded import Tally
from lakerunner.model.errors import LimitHit
from lakerunner.runtime.settings import FormatsSettings

_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The first three refuse the whole object. The next two refuse a line, or the object if it has no lines. The last
    three cut a row. Refused lines and cut rows are counted under the name of the limit.
    """

    #: Size in the bucket.
    compressed_bytes: int = 256 * _MB
    #: Size after decompression. It must stay well below 2 GiB, because Arrow's string offsets have 32 bits.
    expanded_bytes: int = 1024 * _MB
    #: Expanded size divided by compressed size. Real telemetry reaches about 60; a compression bomb 1,000 and more.
    ratio: int = 500
    #: One line of JSON or text, or the header of a CSV file, without the newline.
    line_bytes: int = 8 * _MB
    #: Depth of nested arrays and objects.
    nesting_depth: int = 64
    #: Attributes of the row itself, without those of its resource and scope. Excess attributes are dropped.
    attributes_per_row: int = 1_024
    #: One attribute value or message, in bytes of UTF-8. It is cut at a character boundary.
    value_bytes: int = 1 * _MB
    #: One attribute name, in bytes of UTF-8.
    key_bytes: int = 1_024


def limits_of(settings: FormatsSettings) -> Limits:
    """Return the limits from the settings."""
    return Limits(**{field.name: getattr(settings, field.name) for field in fields(Limits)})


def cut_key(key: str, count: int, limits: Limits, tally: Tally) -> str:
    """Cut a name that is too long, and count the values that have it."""
    if len(key) * 4 <= limits.key_bytes or len(key.encode()) <= limits.key_bytes:
        return key
    tally.shorten("key_bytes", count)
    return key.encode()[: limits.key_bytes].decode("utf-8", "ignore")


def refuse(limit: str, allowed: int, what: str) -> LimitHit:
    """Return the error that names the exceeded limit, for the caller to raise."""
    return LimitHit(
        f"cannot read the object: {what}, more than {limit} = {allowed:,} allows",
        hint=f"send smaller objects, or raise formats.{limit}",
    )
