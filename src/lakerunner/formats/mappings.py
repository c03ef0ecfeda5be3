"""Which keys hold which fields, and in which format objects are, by prefix: the setting `formats.mapping`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from lakerunner.formats.detect import Format
from lakerunner.formats.records.fields import FIELDS, SETTING_NAMES
from lakerunner.model.errors import BadInput

_FORMATS = tuple(str(name) for name in Format if name is not Format.EMPTY)
_FIELD_NAMES = frozenset(name for fields in FIELDS.values() for name in fields)


@dataclass(frozen=True, slots=True)
class ObjectMapping:
    """What was configured for the objects under a prefix: a key's prefix, or an address with bucket and prefix."""

    prefix: str
    #: Our field -> keys that hold it, separated by commas.
    fields: dict[str, str] = field(default_factory=dict)
    format: Format | None = None

    def covers(self, bucket: str, key: str) -> bool:
        return (f"{bucket}/{key}" if "://" in self.prefix else key).startswith(self.prefix)


def parse_mappings(text: str) -> tuple[ObjectMapping, ...]:
    """Parse the setting: a prefix and `name=value` pairs on each line; a semicolon ends a line too.

    >>> parse_mappings("logs-raw/old/ time=when format=csv")[0].fields["timestamp"]
    'when'
    """
    found = []
    for line in text.replace(";", "\n").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as reason:
            raise _wrong(line, str(reason)) from None
        if words:
            found.append(_mapping(line, words))
    return tuple(found)


def _mapping(line: str, words: list[str]) -> ObjectMapping:
    prefix, *pairs = words
    fields: dict[str, str] = {}
    format: Format | None = None
    if "=" in prefix or not pairs:
        raise _wrong(line, "a line is a prefix and then NAME=VALUE pairs")
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not value:
            raise _wrong(line, f"{pair!r} is no NAME=VALUE")
        if name == "format":
            if value not in _FORMATS:
                raise _wrong(line, f"{value!r} is no format", f"use one of {', '.join(_FORMATS)}")
            format = Format(value)
        elif name in SETTING_NAMES:
            fields.update(dict.fromkeys(SETTING_NAMES[name], value))
        elif name in _FIELD_NAMES:
            fields[name] = value
        else:
            raise _wrong(line, f"there is no field {name!r}", f"use one of format, {', '.join(SETTING_NAMES)}")
    return ObjectMapping(prefix, fields, format)


def mapping_of(mappings: tuple[ObjectMapping, ...], bucket: str, key: str) -> ObjectMapping | None:
    """Return the mapping with the longest prefix that covers the object."""
    covering = (mapping for mapping in mappings if mapping.covers(bucket, key))
    return max(covering, key=lambda mapping: len(mapping.prefix.rpartition("://")[2]), default=None)


def _wrong(line: str, reason: str, hint: str = "write it as: logs-raw/old/ time=when message=what") -> BadInput:
    return BadInput(f"cannot read formats.mapping: {reason}", where=line.strip()[:100], hint=hint)
