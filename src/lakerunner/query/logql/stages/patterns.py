"""Patterns such as `<ip> - <user> <_>`: literals and captures in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.text_bytes import Bytes, text_bytes
from lakerunner.query.logql.entries import Check, Entries, Mask
from lakerunner.query.logql.line_patterns import Capture, Parts
from lakerunner.query.logql.stages import pattern_kernel
from lakerunner.query.logql.stages.fields import Wanted, is_wanted, joined, room_for_fields, with_fields
from lakerunner.query.logql.stages.texts import slices


@dataclass(frozen=True, slots=True)
class LinePattern:
    """The literals one after the other, where each begins and the last ends, and all captures."""

    text: Bytes
    bounds: Any
    #: Whether it begins with a literal, and whether it ends with a capture.
    leading: bool
    trailing: bool
    captures: Sequence[Capture]


def line_pattern(parts: Parts) -> LinePattern:
    literals = [part.encode() for part in parts if isinstance(part, str)]
    bounds = np.cumsum([0, *map(len, literals)], dtype=np.int64)
    whole = np.frombuffer(b"".join(literals), np.uint8)
    captures = [part for part in parts if isinstance(part, Capture)]
    leading, trailing = (
        isinstance(parts[0], str) if parts else False,
        isinstance(parts[-1], Capture) if parts else False,
    )
    return LinePattern(whole, bounds, leading, trailing, captures)


def fitting(lines: pa.StringArray, pattern: LinePattern, check: Check) -> Mask:
    """The lines that a pattern fits as a whole."""
    data, offsets = text_bytes(lines)
    found = np.zeros(len(lines), np.bool_)
    for begin, end in slices(offsets):
        check()
        pattern_kernel.fits(
            data, offsets, begin, end, pattern.text, pattern.bounds, pattern.leading, pattern.trailing, found
        )
    return found


def pattern_fields(entries: Entries, pattern: LinePattern, wanted: Wanted, check: Check) -> Entries:
    """The entries with the named captures as labels. A pattern that does not fit gives fewer of them, or none."""
    data, offsets = text_bytes(entries.lines)
    needed = [not one.unnamed and is_wanted(one.name, wanted) for one in pattern.captures]
    chosen, chunks = np.array(needed, np.bool_), []
    for begin, end in slices(offsets):
        check()
        out = room_for_fields((end - begin) * sum(needed))
        used = pattern_kernel.captures(
            data, offsets, begin, end, pattern.text, pattern.bounds, pattern.leading, chosen, out
        )
        chunks.append(out[:used])
    names = [capture.name for capture in pattern.captures]
    return with_fields(entries, joined(data, chunks), names, wanted, check)
