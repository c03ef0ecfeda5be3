"""Group lines into records: a head and the lines that continue it, such as a stack trace."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints
from lakerunner.formats.text.words import MONTH_FIRST

Mask = npt.NDArray[np.bool_]

_EXCEPTION = (
    r"(?:[A-Za-z_$][\w$]*(?:\.|::|\\))*[A-Z]\w*(?:Error|Exception|Failure|Warning|Interrupt|Exit|Fault|Throwable)"
    r"(?:\s*[:(\[]|$)"
)
#: Lines that continue another one whatever the file looks like: indented lines, and the words of stack traces.
_CONTINUATION = (
    r"^(?:\s|Caused by:|Suppressed:|Traceback \(|The above exception|During handling of|goroutine \d+ \[|created by |"
    r"panic: |at \S+\(|\.\.\. \d+ (?:more|common)|Stack trace:|stack backtrace:|note: run with|--- End of|#\d+ |"
    rf"[}})\]]|[\w./*()-]+\([^()]*\)$|exit status|{_EXCEPTION})"
)
#: java.util.logging writes two lines: time, class and method, then level and message.
_JAVA_FIRST = rf"^{MONTH_FIRST} [\w.$]+ [\w$<>]+$"
_JAVA_SECOND = r"^(?:SEVERE|WARNING|INFO|CONFIG|FINE|FINER|FINEST): "
#: Lines without a head continue the head before them where the file has at most this many of them per head.
_LOOSE_LINES_PER_HEAD = 2
#: Where this many lines begin with a time for each that has one further inside, the latter are nothing special.
_HEADS_PER_TIME_WITHIN = 2


def record_starts(lines: pa.Array, headed: Mask, timed_within: Mask, is_json: Mask, *, wrapped: bool) -> Ints:
    """Return the lines at which records begin. Blank lines before the first record belong to none.

    Lines that a runtime `wrapped` have a time each, so only what is clearly a continuation continues another line.
    """
    continues = _matching(lines, _CONTINUATION) & ~is_json
    blank = pc.equal(pc.utf8_trim_whitespace(lines), "").to_numpy(zero_copy_only=False)
    heads = headed & ~is_json & ~_java_second(lines)
    if int(timed_within.sum()) * _HEADS_PER_TIME_WITHIN <= int(heads.sum()):
        timed_within = np.zeros(len(lines), np.bool_)
    loose = ~heads & ~timed_within & ~is_json & ~continues & ~blank
    starts = heads | is_json | (timed_within & ~continues)
    if wrapped or int(loose.sum()) > _LOOSE_LINES_PER_HEAD * int(heads.sum()):
        starts |= loose
    # Nothing continues JSON: the first line after it begins a record of its own.
    after_json = np.zeros(len(lines), np.bool_)
    after_json[1:] = is_json[:-1]
    starts |= after_json & ~blank
    if not starts.any() or not starts[0]:
        # What comes before the first head: a banner, or the end of a record whose head is in another file.
        first = int(np.argmax(starts)) if starts.any() else len(lines)
        starts[:first] = ~blank[:first] & ~continues[:first]
        lead = np.flatnonzero(~blank[:first])
        starts[lead[:1]] = True
    return np.flatnonzero(starts)


def _java_second(lines: pa.Array) -> Mask:
    """Return a mask of second lines of java.util.logging."""
    second = _matching(lines, _JAVA_SECOND)
    if second.any():
        second[1:] &= _matching(lines, _JAVA_FIRST)[:-1]
        second[:1] = False
    return second


def _matching(lines: pa.Array, pattern: str) -> Mask:
    mask: Mask = pc.match_substring_regex(lines, pattern).to_numpy(zero_copy_only=False).copy()
    return mask
