"""Unwrap lines of container runtimes and of tools that put a prefix before the line of a program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Entry, Ints
from lakerunner.formats.patterns import matching, sample_of
from lakerunner.formats.records.fields import OUTER_TIME
from lakerunner.formats.text.dialects import ENVELOPES, Dialect
from lakerunner.formats.text.lines import joined
from lakerunner.formats.text.words import ANY

_KEYS = {"outer_time": OUTER_TIME, "service": "service_name"}


@dataclass(frozen=True, slots=True)
class Unwrapped:
    lines: pa.Array
    #: The number of each line in the file, from 1.
    numbers: Ints
    entries: list[Entry]


def unwrap(lines: pa.Array, numbers: Ints) -> Unwrapped:
    """Return the inner lines if most lines are wrapped, else the lines as they are."""
    envelope = _envelope_of(lines)
    if envelope is None:
        return Unwrapped(lines, numbers, [])
    groups = pc.extract_regex(lines, envelope.loose or envelope.pattern)
    names = [field.name for field in groups.type]
    parts = {name: pc.fill_null(part, "") for name, part in zip(names, groups.flatten(), strict=True)}
    inner = pc.if_else(groups.is_valid(), parts.pop("inner"), lines)
    if "tag" in parts:
        order, starts = _whole_lines(parts.pop("tag"), parts["stream"])
        inner = joined(inner.take(pa.array(order)), starts, "")
        firsts = order[starts]
        # Lines of two streams may be interleaved. A whole line stands where its first part stood.
        place = np.argsort(firsts, kind="stable")
        inner, firsts = inner.take(pa.array(place)), firsts[place]
        numbers = numbers[firsts]
        parts = {name: part.take(pa.array(firsts)) for name, part in parts.items()}
    entries = []
    for name, part in parts.items():
        rows = np.flatnonzero(pc.not_equal(part, "").to_numpy(zero_copy_only=False))
        if len(rows):
            entries.append(Entry(_KEYS.get(name, name), rows, part, rows))
    return Unwrapped(inner, numbers, entries)


def _envelope_of(lines: pa.Array) -> Dialect | None:
    """Return the envelope that most lines of a sample have."""
    sample = [line for line in sample_of(lines) if line]
    for envelope in ENVELOPES:
        if 2 * sum(matching(envelope.pattern, sample)) > len(sample):
            # `INFO | message` is a level and no service.
            return None if 2 * sum(matching(rf"^{ANY}\s*\|", sample)) > len(sample) else envelope
    return None


def _whole_lines(tags: pa.Array, streams: pa.Array) -> tuple[Ints, Ints]:
    """Return the lines ordered by stream, and where in that order whole lines begin.

    A runtime cuts a long line into parts (P); the last part is marked F.
    """
    stream = streams.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(stream, kind="stable")
    partial = pc.equal(tags, "P").to_numpy(zero_copy_only=False)[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = ~partial[:-1] | (stream[order][1:] != stream[order][:-1])
    return order, np.flatnonzero(begins)
