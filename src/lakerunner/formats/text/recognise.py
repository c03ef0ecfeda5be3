"""Recognise the parts of log lines: time, level, service, message and attributes, for a whole column at once.

A sample shows which dialects occur. These are tried first, in their order, and the others only on lines that none of
them matched, so a file of one dialect costs few regular expressions per line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats import severity
from lakerunner.formats.attributes import Entry, Ints
from lakerunner.formats.patterns import order_of
from lakerunner.formats.text.dialects import EMBEDDED, HEADS, TAILS, Dialect
from lakerunner.formats.text.logfmt import LOGFMT, logfmt_pairs
from lakerunner.formats.text.structured_data import structured_pairs

Mask = npt.NDArray[np.bool_]
#: Longer texts are not taken apart into pairs: each pair costs a look at all that follows it.
_MOST_PAIRS_BYTES = 16_384
#: Linux's audit log looks like pairs, but its message is the time.
_AUDIT = " msg=audit("
#: Group -> the key of the record that it becomes, where the names differ.
_KEYS = {"time": "timestamp", "level": "severity", "service": "service_name"}
_REDIS_LEVELS = {".": "DEBUG", "-": "VERBOSE", "*": "NOTICE", "#": "WARNING"}
_NUMBERS = frozenset({"pid", "status", "bytes", "received_bytes", "target_status"})


@dataclass(slots=True)
class Recognised:
    """The parts of a column of lines. `messages` has one text per line; the other parts are entries by key."""

    messages: pa.Array
    entries: list[Entry] = field(default_factory=list)
    #: Lines that begin with a time, a level or another mark of a dialect, and lines with a time further inside.
    headed: Mask = field(init=False)
    timed_within: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.headed = np.zeros(len(self.messages), np.bool_)
        self.timed_within = np.zeros(len(self.messages), np.bool_)

    def add(self, key: str, rows: Ints, values: pa.Array) -> None:
        """Add values of a key. Groups that did not take part in a match are empty, and dropped."""
        present = pc.fill_null(pc.not_equal(values, ""), False).to_numpy(zero_copy_only=False)
        if present.any():
            index = np.flatnonzero(present)
            self.entries.append(Entry(key, rows[index], values, index))

    def set_messages(self, rows: Ints, values: pa.Array) -> None:
        mask = np.zeros(len(self.messages), np.bool_)
        mask[rows] = True
        # Rows are ascending, which is the order in which the values are taken.
        self.messages = pc.replace_with_mask(self.messages, pa.array(mask), values)


def recognise(lines: pa.Array, heads: Sequence[Dialect] = HEADS) -> Recognised:
    """Recognise lines, each on its own."""
    found = Recognised(lines)
    rows = np.flatnonzero(pc.not_equal(lines, "").to_numpy(zero_copy_only=False))
    # An indented line continues another one; a brace begins JSON.
    own = pc.match_substring_regex(lines.take(pa.array(rows)), r"^[^\s{}]")
    rows = rows[own.to_numpy(zero_copy_only=False)]
    _take_logfmt(found, rows)
    rows = rows[~found.headed[rows]]
    timed: list[tuple[Ints, pa.Array]] = []
    for number, dialect_rows, groups in _matches(heads, lines, rows):
        found.headed[dialect_rows] = True
        rest = _take_groups(found, heads[number], dialect_rows, groups)
        if rest is not None:
            timed.append((dialect_rows, rest))
    if timed:
        _take_tails(found, timed)
    _take_logfmt(found, rows[found.headed[rows]])
    _take_embedded(found, lines, rows[~found.headed[rows]])
    return found


def _take_tails(found: Recognised, timed: list[tuple[Ints, pa.Array]]) -> None:
    rows = np.concatenate([part for part, _ in timed])
    order = np.argsort(rows, kind="stable")
    rests = pa.concat_arrays([part for _, part in timed]).take(pa.array(order))
    rows = rows[order]
    for number, at, groups in _matches(TAILS, rests, np.arange(len(rows))):
        _take_groups(found, TAILS[number], rows[at], groups)


def _take_embedded(found: Recognised, lines: pa.Array, rows: Ints) -> None:
    """Find times further inside of the remaining lines, which keep their whole text as the message."""
    for number, at, groups in _matches(EMBEDDED, lines, rows):
        _take_groups(found, EMBEDDED[number], at, groups)
        found.timed_within[at] = True


def _take_logfmt(found: Recognised, rows: Ints) -> None:
    """Take messages apart that are pairs of keys and values."""
    texts = found.messages.take(pa.array(rows))
    is_pairs = pc.and_(pc.match_substring_regex(texts, LOGFMT), pc.less(pc.binary_length(texts), _MOST_PAIRS_BYTES))
    is_pairs = pc.and_(pc.fill_null(is_pairs, False), pc.invert(pc.fill_null(pc.match_substring(texts, _AUDIT), False)))
    rows, texts = rows[is_pairs.to_numpy(zero_copy_only=False)], texts.filter(is_pairs)
    if not len(rows):
        return
    found.headed[rows] = True
    has_message = np.zeros(len(rows), np.bool_)
    pairs = logfmt_pairs(texts)
    for key, at, values in pairs:
        found.add(key, rows[at], values)
        if key in ("msg", "message", "event"):
            has_message[at] = True
    # The message is one of the pairs, which the record's keys find. Where there is none, the line stays the message.
    taken = rows[has_message]
    found.set_messages(taken, pa.nulls(len(taken), pa.string()))


def _matches(dialects: Sequence[Dialect], texts: pa.Array, rows: Ints) -> list[tuple[int, Ints, pa.StructArray]]:
    """Return, for each dialect that matches any of the rows, its number, the rows and the groups."""
    matches = []
    texts = texts.take(pa.array(rows))
    for number in order_of([dialect.pattern for dialect in dialects], texts):
        if not len(rows):
            break
        groups = pc.extract_regex(texts, dialects[number].pattern)
        hit = groups.is_valid().to_numpy(zero_copy_only=False)
        if hit.any():
            matches.append((number, rows[hit], groups.filter(pa.array(hit))))
            rows, texts = rows[~hit], texts.filter(pa.array(~hit))
    return matches


def _take_groups(found: Recognised, dialect: Dialect, rows: Ints, groups: pa.StructArray) -> pa.Array | None:
    """Turn the groups of a match into entries. Return the group `rest`, if the dialect has one."""
    rest = None
    names = [field.name for field in groups.type]
    for name, values in zip(names, groups.flatten(), strict=True):
        key = name[:-2] if name[-2:-1] == "_" and name[-1:].isdigit() else name
        if key == "message":
            found.set_messages(rows, values)
        elif key == "rest":
            rest = values
        elif key == "pri":
            found.add("severity", rows, _syslog_levels(values))
        elif key == "mark":
            found.add("severity", rows, _mapped(values, _REDIS_LEVELS))
        elif key == "structured":
            short = pc.if_else(pc.less(pc.binary_length(values), _MOST_PAIRS_BYTES), values, "")
            for pair_key, at, pair_values in structured_pairs(short):
                found.add(pair_key, rows[at], pair_values)
        elif key == "pairs":
            for pair_key, at, pair_values in logfmt_pairs(values):
                found.add(pair_key, rows[at], pair_values)
        elif key in _NUMBERS:
            _add_numbers(found, key, rows, values)
        else:
            if key in ("logger", "thread", "service", "user", "referer", "user_agent", "identity", "msgid", "host"):
                values = _without_dash(pc.utf8_trim_whitespace(values))
            found.add(_KEYS.get(key, key), rows, values)
    return rest


def _without_dash(values: pa.Array) -> pa.Array:
    """Syslog and access logs write - for a value that is absent."""
    return pc.if_else(pc.equal(values, "-"), "", values)


def _add_numbers(found: Recognised, key: str, rows: Ints, values: pa.Array) -> None:
    digits = pc.match_substring_regex(values, r"^\d{1,18}$").to_numpy(zero_copy_only=False)
    index = np.flatnonzero(digits)
    if len(index):
        numbers = values.take(pa.array(index)).cast(pa.int64())
        found.entries.append(Entry(key, rows[index], numbers, np.arange(len(index))))
    others = pc.if_else(pa.array(digits), "", _without_dash(values))
    found.add(key, rows, others)


def _syslog_levels(priorities: pa.Array) -> pa.Array:
    numbers = pc.if_else(pc.equal(priorities, ""), pa.scalar(None, pa.string()), priorities).cast(pa.int64())
    return severity.syslog_names(pc.bit_wise_and(numbers, 7)).fill_null("")


def _mapped(values: pa.Array, names: dict[str, str]) -> pa.Array:
    encoded = values.dictionary_encode()
    return pa.array([names.get(text, text) for text in encoded.dictionary.to_pylist()], pa.string()).take(
        encoded.indices
    )
