"""`decolorize`: lines without the escape sequences that colour a terminal."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.logql.entries import Check, Entries
from lakerunner.query.logql.stages.matching import containing
from lakerunner.query.logql.stages.texts import slices

#: Escape or CSI, then the parameters and the final byte of a sequence, or the text of a hyperlink up to a bell.
_ANSI = (
    "[\x1b\x9b][\\[\\]()#;?]*"
    "(?:(?:(?:[a-zA-Z\\d]*(?:;[a-zA-Z\\d]*)*)?\x07)|(?:(?:\\d{1,4}(?:;\\d{0,4})*)?[\\dA-PRZcf-ntqry=><~]))"
)


def decolorized(entries: Entries, check: Check) -> Entries:
    if not (containing(entries.lines, "\x1b", check) | containing(entries.lines, "\x9b", check)).any():
        return entries
    _, offsets = text_bytes(entries.lines)
    parts = []
    for begin, end in slices(offsets):
        check()
        parts.append(pc.replace_substring_regex(entries.lines.slice(begin, end - begin), _ANSI, ""))
    return entries.with_lines(pa.concat_arrays(parts))
