"""Tell CSV with a header from text that has commas in it."""

from __future__ import annotations

import csv as text_csv
import io
import itertools
import re

from lakerunner.formats.records.fields import FIELDS, canonical

_DELIMITERS = ",\t;|"
#: Rows that are compared with the header.
_ROWS_TRIED = 20
#: A share of rows may differ, because some may be damaged; a larger one below a header of well-known names.
_FITTING_SHARE, _FITTING_SHARE_KNOWN = 0.7, 0.4
_NAME = re.compile(r"[A-Za-z_@#$][\w.@/:()%$#*\[\]-]*(?: [\w.@/:()%$#*\[\]-]+){0,4}")
_PLAIN_NAME = re.compile(r"[A-Za-z_@][\w.@/-]*")
_VALUE = re.compile(r"[+-]?\d[\d.,:/ TZ+-]*(?i:am|pm|utc)?|true|false|null", re.IGNORECASE)
_LEVEL = re.compile(r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)")
_KNOWN = frozenset(canonical(key) for fields in FIELDS.values() for keys in fields.values() for key in keys)


def delimiter_of(header: bytes) -> str:
    """Return the delimiter that occurs most often in the header line."""
    text = header.decode("utf-8", "replace")
    return max(_DELIMITERS, key=text.count)


def cells_of(line: str, delimiter: str) -> list[str]:
    """Split a line into cells. Raises csv.Error."""
    return [cell.strip() for cell in next(text_csv.reader(io.StringIO(line), delimiter=delimiter), [])]


def is_csv(sample: bytes, *, named: bool, is_whole: bool) -> bool:
    """Return whether text is CSV with a header. `named` says that the object's name ends in .csv or .tsv."""
    first, _, rest = sample.partition(b"\n")
    delimiter = delimiter_of(first)
    header = first.decode("utf-8", "replace").rstrip("\r")
    try:
        names = cells_of(header, delimiter)
    except text_csv.Error:
        return named
    if named:
        return not all(_VALUE.fullmatch(name) or not name for name in names) and not _VALUE.fullmatch(names[0])
    if len(names) < 2 or not _are_names(names, header, delimiter):
        return False
    share = _FITTING_SHARE_KNOWN if sum(canonical(name) in _KNOWN for name in names) > 1 else _FITTING_SHARE
    return _fitting(rest.decode("utf-8", "replace"), delimiter, len(names), is_whole=is_whole) >= share


def _are_names(names: list[str], header: str, delimiter: str) -> bool:
    if len({name.lower() for name in names}) < len(names):
        return False
    if not all(_NAME.fullmatch(name) and not _VALUE.fullmatch(name) and not _LEVEL.fullmatch(name) for name in names):
        return False
    # "Hello, world" could be two names. It takes a known name, or names without blanks around them, to be a header.
    return any(canonical(name) in _KNOWN for name in names) or (
        f"{delimiter} " not in header and all(_PLAIN_NAME.fullmatch(name) for name in names)
    )


def _fitting(rest: str, delimiter: str, width: int, *, is_whole: bool) -> float:
    """Return the share of the first rows that have the width of the header."""
    widths: list[int] = []
    try:
        rows = text_csv.reader(io.StringIO(rest, newline=""), delimiter=delimiter)
        widths.extend(itertools.islice((len(row) for row in rows if row), _ROWS_TRIED + 1))
    except text_csv.Error:
        # A cell is too large, or a quote is never closed. The rows before count.
        is_whole = False
    if not is_whole or len(widths) > _ROWS_TRIED:
        # The sample ends in the middle of a row.
        widths = widths[:-1] or widths
    return sum(length == width for length in widths) / len(widths) if widths else 1.0
