"""Find the level in the text of a log line, as Loki does: in a JSON or logfmt field, else as a word of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.uint8]

#: The levels that are known; a code is a place in this list.
LEVELS = ("unknown", "trace", "debug", "info", "warn", "error", "critical", "fatal")
#: Words that name a level -> the level, as the value of a field.
VALUE_WORDS = {
    **{word: word for word in LEVELS[1:]},
    "trc": "trace",
    "dbg": "debug",
    "inf": "info",
    "information": "info",
    "wrn": "warn",
    "warning": "warn",
    "err": "error",
}
#: Those of them that also count as a word anywhere in the line.
_LINE_WORDS = ("trace", "debug", "fatal", "critical", "error", "err", "warning", "warn", "info")
#: Names of fields that hold a level, in order of preference. In JSON they are spelled exactly so.
FIELD_NAMES = (
    *("level", "LEVEL", "Level", "log.level", "severity", "SEVERITY", "Severity", "SeverityText", "lvl", "LVL", "Lvl"),
    *("severity_text", "Severity_Text", "SEVERITY_TEXT"),
)
#: Objects within an object that are looked into.
_JSON_DEPTH = 2

_WIDTH = 16


def _table(words: list[str]) -> Bytes:
    """Words as rows of bytes; the first byte is the length."""
    made = np.zeros((len(words), _WIDTH), np.uint8)
    for row, word in zip(made, words, strict=True):
        row[0] = len(word)
        row[1 : len(word) + 1] = np.frombuffer(word.encode(), np.uint8)
    return made


_VALUES = _table(list(VALUE_WORDS))
_VALUE_CODES = np.array([LEVELS.index(level) for level in VALUE_WORDS.values()], np.uint8)
_WORDS = _table(list(_LINE_WORDS))
_WORD_CODES = np.array([LEVELS.index(VALUE_WORDS[word]) for word in _LINE_WORDS], np.uint8)
_NAMES = _table(list(FIELD_NAMES))
_LOWER_NAMES = _table([name.lower() for name in FIELD_NAMES])


def _flags(characters: str) -> npt.NDArray[np.bool_]:
    flags = np.zeros(256, np.bool_)
    flags[list(characters.encode())] = True
    return flags


_BEFORE_WORD = _flags(' \t\n[({"=')
_AFTER_WORD = _flags(' \t\n[](){}:,!"=')
_FIRST_LETTERS = _flags("tdfcewiTDFCEWI")
_SPACE = _flags(" \t\n\v\f\r")
_JSON_SPACE = _flags(" \t\n\r")
_QUOTE, _BACKSLASH, _EQUALS, _BLANK = ord('"'), ord("\\"), ord("="), ord(" ")
_OPEN, _CLOSE, _COLON, _COMMA = ord("{"), ord("}"), ord(":"), ord(",")
_OPEN_LIST, _CLOSE_LIST = ord("["), ord("]")


@njit(cache=True, nogil=True)
def levels_in(data: Bytes, offsets: npt.NDArray[np.int32], wanted: npt.NDArray[np.bool_], codes: Codes) -> None:
    """Write the level of each wanted line to `codes`."""
    for row in range(len(offsets) - 1):
        if wanted[row]:
            codes[row] = _level_in(data, offsets[row], offsets[row + 1])


@njit(cache=True, nogil=True)
def _level_in(data: Bytes, begin: int, end: int) -> int:
    first, last = begin, end
    while first < end and _SPACE[data[first]]:
        first += 1
    while last > first and _SPACE[data[last - 1]]:
        last -= 1
    code = 0
    if last > first and data[first] == _OPEN and data[last - 1] == _CLOSE:
        code = _json_level(data, first, last)
    else:
        for at in range(begin, end):
            if data[at] == _EQUALS:
                code = _logfmt_level(data, begin, end)
                break
    return code if code else _word_level(data, begin, end)


@njit(cache=True, nogil=True, inline="always")
def _lower(byte: Any) -> Any:
    return byte + np.uint8(32) if 65 <= byte <= 90 else byte


@njit(cache=True, nogil=True)
def _is_word(data: Bytes, begin: int, word: Bytes) -> bool:
    place = 0
    while place < word[0] and _lower(data[begin + place]) == word[place + 1]:
        place += 1
    return bool(place == word[0])


@njit(cache=True, nogil=True)
def _word_level(data: Bytes, begin: int, end: int) -> int:
    """Return the level of the first word that names one."""
    for at in range(begin, end):
        if not _FIRST_LETTERS[data[at]] or (at > begin and not _BEFORE_WORD[data[at - 1]]):
            continue
        for number in range(len(_WORDS)):
            after = at + _WORDS[number, 0]
            if after > end or (after < end and not _AFTER_WORD[data[after]]):
                continue
            if _is_word(data, at, _WORDS[number]):
                return int(_WORD_CODES[number])
    return 0


@njit(cache=True, nogil=True)
def _value_level(data: Bytes, begin: int, end: int) -> int:
    for number in range(len(_VALUES)):
        if _VALUES[number, 0] == end - begin and _is_word(data, begin, _VALUES[number]):
            return int(_VALUE_CODES[number])
    return 0


@njit(cache=True, nogil=True)
def _logfmt_level(data: Bytes, begin: int, end: int) -> int:
    """Return the level in the field that is preferred most; a syntax error ends the search."""
    best, code, at = len(_LOWER_NAMES), 0, begin
    while at < end:
        while at < end and data[at] <= _BLANK:
            at += 1
        key = at
        while at < end and data[at] != _EQUALS and data[at] > _BLANK:
            if data[at] == _QUOTE:
                return code
            at += 1
        key_end = at
        if key == key_end:
            return code
        value = value_end = at
        if at < end and data[at] == _EQUALS:
            at += 1
            value = value_end = at
            if at < end and data[at] == _QUOTE:
                value = at + 1
                at = _string_end(data, value, end)
                if at < 0:
                    return code
                value_end = at - 1
            else:
                while at < end and data[at] > _BLANK:
                    if data[at] == _EQUALS or data[at] == _QUOTE:
                        return code
                    at += 1
                value_end = at
        for number in range(best):
            if _LOWER_NAMES[number, 0] == key_end - key and _is_word(data, key, _LOWER_NAMES[number]):
                best, code = number, _value_level(data, value, value_end)
                break
        if best == 0:
            return code
    return code


@njit(cache=True, nogil=True)
def _string_end(data: Bytes, begin: int, end: int) -> int:
    """Return the position behind the closing quote; -1 if there is none."""
    at = begin
    while at < end:
        if data[at] == _BACKSLASH:
            at += 1
        elif data[at] == _QUOTE:
            return at + 1
        at += 1
    return -1


@njit(cache=True, nogil=True)
def _block_end(data: Bytes, begin: int, end: int, opening: int, closing: int) -> int:
    """Return the position behind the bracket that closes the one at `begin`; -1 if there is none."""
    depth, at = 0, begin
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            at = _string_end(data, at + 1, end)
            if at < 0:
                return -1
            continue
        if byte == opening:
            depth += 1
        elif byte == closing:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return -1


@njit(cache=True, nogil=True)
def _skip_space(data: Bytes, at: int, end: int) -> int:
    while at < end and _JSON_SPACE[data[at]]:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _json_level(data: Bytes, begin: int, end: int) -> int:
    """Return the level in the first field that has the name of a level and a text, whatever the text.

    A syntax error ends the search.
    """
    depth = 0
    at = _skip_space(data, begin + 1, end)
    while at < end:
        if data[at] == _CLOSE:
            depth -= 1
            if depth < 0:
                return 0
            at = _behind_comma(data, at + 1, end)
            continue
        if data[at] != _QUOTE:
            return 0
        key = at + 1
        at = _string_end(data, key, end)
        if at < 0:
            return 0
        key_end = at - 1
        at = _skip_space(data, at, end)
        if at >= end or data[at] != _COLON:
            return 0
        at = _skip_space(data, at + 1, end)
        if at >= end:
            return 0
        if data[at] == _OPEN and depth + 1 < _JSON_DEPTH and _block_end(data, at, end, _OPEN, _CLOSE) > 0:
            depth += 1
            at = _skip_space(data, at + 1, end)
            continue
        is_text = data[at] == _QUOTE
        value = at + 1
        at = _value_end(data, at, end)
        if at < 0:
            return 0
        if is_text and _is_field(data, key, key_end):
            return _value_level(data, value, at - 1)
        at = _behind_comma(data, at, end)
    return 0


@njit(cache=True, nogil=True)
def _value_end(data: Bytes, at: int, end: int) -> int:
    """Return the position behind a JSON value; -1 if it does not end."""
    if data[at] == _QUOTE:
        return _string_end(data, at + 1, end)
    if data[at] == _OPEN:
        return _block_end(data, at, end, _OPEN, _CLOSE)
    if data[at] == _OPEN_LIST:
        return _block_end(data, at, end, _OPEN_LIST, _CLOSE_LIST)
    while at < end and data[at] != _COMMA and data[at] != _CLOSE and not _JSON_SPACE[data[at]]:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _behind_comma(data: Bytes, at: int, end: int) -> int:
    """Return the position of the next key, or of the bracket that closes the object; the end after anything else."""
    at = _skip_space(data, at, end)
    if at < end and data[at] == _COMMA:
        return _skip_space(data, at + 1, end)
    return at if at < end and data[at] == _CLOSE else end


@njit(cache=True, nogil=True)
def _is_field(data: Bytes, begin: int, end: int) -> bool:
    for number in range(len(_NAMES)):
        if _NAMES[number, 0] != end - begin:
            continue
        place = 0
        while place < end - begin and data[begin + place] == _NAMES[number, place + 1]:
            place += 1
        if place == end - begin:
            return True
    return False
