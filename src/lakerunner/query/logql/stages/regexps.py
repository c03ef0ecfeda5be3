"""`regexp`: the named groups of a regular expression become labels.

Arrow runs RE2 over whole columns. Capturing costs most of the time: with one group instead of eight, a pattern of an
access log takes a sixth (2026-11). So only the groups that the query needs are captured.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Check, Entries, Stage
from lakerunner.query.logql.stages.fields import EXTRACTED, Wanted, sanitized, with_parsed
from lakerunner.query.logql.stages.matching import checked
from lakerunner.query.logql.stages.texts import bytes_of
from lakerunner.query.series import patterns

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
        _, offsets = bytes_of(entries.lines)
        parts = [
            pc.extract_regex(entries.lines.slice(begin, end - begin), text)
            for begin, end in checked(offsets, compiled, check, len(needed))
        ]
        groups = pa.concat_arrays(parts)
        for number, name in enumerate(needed):
            # `flatten` would copy all groups to apply the validity of the struct.
            values = pc.if_else(groups.is_valid(), groups.field(number), pa.scalar(None, pa.string()))
            entries = _with_group(entries, sanitized(name), values, wanted)
        return entries

    return extract


def _group(piece: re.Match[str], needed: list[str], wanted: Wanted) -> str:
    """What opens a group, without capturing where its text is not needed."""
    name = piece[1]
    if name is None:
        return "(?:" if piece[0] == "(" else piece[0]
    if wanted is not None and name not in wanted and name + EXTRACTED not in wanted:
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
