"""`regexp`: the named groups of a regular expression become labels.

Arrow runs RE2 over whole columns. Capturing costs most of the time: with one group instead of eight, a pattern of an
access log takes a sixth (2026-11). So only the groups that the query needs are captured.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.text_bytes import Offsets, text_bytes
from lakerunner.query.logql.entries import Check, Entries, Stage
from lakerunner.query.logql.stages.fields import EXTRACTED, Wanted, is_wanted, sanitized, with_parsed
from lakerunner.query.logql.stages.texts import BYTES_PER_CHECK, slices
from lakerunner.query.series import patterns
from lakerunner.query.series.patterns import Pattern

#: Steps of the first range, at most 25 ms; ranges are doubled while they take less than this.
_FIRST_STEPS, _FAST_S = 1 << 20, 0.05

#: An escape, quoted text, a class of characters, or what opens a group. A class may begin with a closing bracket, and
#: may hold other classes such as `[:alpha:]`.
_PIECE = re.compile(r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\(\?P?<(\w+)>|\((?!\?)", re.DOTALL)


def regexp_stage(pattern: str, wanted: Wanted) -> Stage:
    needed: list[str] = []
    text = _PIECE.sub(lambda piece: _group(piece, needed, wanted), pattern)
    compiled = patterns.compiled(text, True, dot_nl=False)

    def extract(entries: Entries, check: Check) -> Entries:
        if not needed or not len(entries):
            return entries
        _, offsets = text_bytes(entries.lines)
        parts = [
            pc.extract_regex(entries.lines.slice(begin, end - begin), text)
            for begin, end in _slices(offsets, compiled, check)
        ]
        for number, name in enumerate(needed):
            values = pa.concat_arrays([_texts(part, number) for part in parts])
            entries = _with_group(entries, sanitized(name), values, wanted)
        return entries

    return extract


def _texts(groups: pa.StructArray, number: int) -> pa.StringArray:
    """The texts of a group. Where the pattern does not match, all of them are null."""
    texts = groups.field(number)
    return pc.if_else(groups.is_valid(), texts, pa.scalar(None, pa.string())) if groups.null_count else texts


def _slices(offsets: Offsets, pattern: Pattern, check: Check) -> Iterator[tuple[int, int]]:
    """Ranges of lines to match between two checks. Refuses a pattern that may take too long for the longest line.

    The steps that a pattern may take say little about those that it takes, so the ranges grow as long as they are fast.
    """
    longest = int(np.diff(offsets).max())
    steps = pattern.steps(longest, pattern.groups)
    size, row, total = max(1, _FIRST_STEPS * (longest + 1) // steps), 0, len(offsets) - 1
    while row < total:
        check()
        end = next(slices(offsets[row:], size))[1] + row
        began_s = time.monotonic()
        yield row, end
        if time.monotonic() - began_s < _FAST_S:
            size = min(size * 2, BYTES_PER_CHECK)
        row = end


def _group(piece: re.Match[str], needed: list[str], wanted: Wanted) -> str:
    """What opens a group, without capturing where its text is not needed."""
    name = piece[1]
    if name is None:
        return "(?:" if piece[0] == "(" else piece[0]
    if not is_wanted(name, wanted):
        return "(?:"
    needed.append(name)
    return f"(?P<{name}>"


def _with_group(entries: Entries, name: str, values: pa.StringArray, wanted: Wanted) -> Entries:
    stored = entries.stored(name)
    if stored is None:
        return with_parsed(entries, name, values) if wanted is None or name in wanted else entries
    clash, nothing = pa.array(stored), pa.scalar(None, pa.string())
    if wanted is None or name + EXTRACTED in wanted:
        apart = pc.if_else(clash, values, nothing)
        if apart.null_count < len(apart):
            entries = with_parsed(entries, name + EXTRACTED, apart)
    if not np.all(stored) and (wanted is None or name in wanted):
        entries = with_parsed(entries, name, pc.if_else(clash, nothing, values))
    return entries
