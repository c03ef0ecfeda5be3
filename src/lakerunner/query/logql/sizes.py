"""Sizes in bytes with units: KB, MB, … are powers of 1,000, KiB, MiB, … of 1,024."""

from __future__ import annotations

import math
import re

from lakerunner.model.errors import BadInput

_PREFIXES = "kmgtpe"
_UNITS = {"": 1, "b": 1}
for _power, _prefix in enumerate(_PREFIXES, 1):
    _UNITS |= {_prefix: 1000**_power, f"{_prefix}b": 1000**_power}
    _UNITS |= {f"{_prefix}i": 1024**_power, f"{_prefix}ib": 1024**_power}
_SIZE = re.compile(r"([\d.,]+)\s*([a-zA-Z]*)\s*")
_MOST_BYTES = 1 << 64


def parse_size_bytes(text: str) -> int:
    """The bytes of a size.

    >>> parse_size_bytes("1.5KiB"), parse_size_bytes("20MB"), parse_size_bytes("7B")
    (1536, 20000000, 7)
    """
    found = _SIZE.fullmatch(text)
    unit = _UNITS.get(found[2].lower()) if found else None
    try:
        size = float(found[1].replace(",", "")) * unit if found and unit else None
    except ValueError:
        size = None
    if size is None:
        raise BadInput(f"cannot read {text!r} as a size", hint="write it like 512B, 20KB or 1.5MiB")
    if size >= _MOST_BYTES:
        raise BadInput(f"cannot read {text!r}: size out of range")
    return int(size)


def format_size(size_bytes: int) -> str:
    """The size with a unit if that loses nothing, else in bytes.

    >>> format_size(20_000_000), format_size(1000), format_size(3072), format_size(512)
    ('20MB', '1.0kB', '3072B', '512B')
    """
    text = rounded_size(size_bytes)
    return text if parse_size_bytes(text) == size_bytes else f"{size_bytes}B"


def rounded_size(size_bytes: int) -> str:
    """The size with a unit and two digits or three.

    >>> rounded_size(1_572_864), rounded_size(12_288), rounded_size(7_000), rounded_size(5)
    ('1.6MB', '12kB', '7.0kB', '5B')
    """
    power = 0
    while power < len(_PREFIXES) and size_bytes >= 1000 ** (power + 1):
        power += 1
    if not power:
        return f"{size_bytes}B"
    scaled = math.floor(size_bytes / 1000**power * 10 + 0.5) / 10
    prefix = _PREFIXES[power - 1]
    return f"{scaled:.{0 if scaled >= 10 else 1}f}{prefix if prefix == 'k' else prefix.upper()}B"
