"""Columns as the texts that actions write, and `print` and `printf`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.stages.template.column_calls.signature import Vectorised
from lakerunner.query.logql.stages.template.column_calls.times import time_texts
from lakerunner.query.logql.stages.template.columns import (
    Column,
    Constant,
    Numbers,
    Texts,
    distinct,
    plain_texts,
    raw_texts,
)
from lakerunner.query.logql.stages.template.go_fmt import printed

#: How Go shows a time.
_SHOWN = "2006-01-02 15:04:05.999999999 -0700 MST"
_VERB = re.compile(r"%(-?)([0-9]*)([svd%])|%")


def printed_column(column: Column) -> pa.Array | str:
    """The texts that an action writes."""
    if isinstance(column, Constant):
        return _shown(column.value)
    if isinstance(column, Texts):
        return plain_texts(column)
    if isinstance(column, Numbers):
        if column.go_type == "time.Time":
            return time_texts(column.array.astype("int64"), _SHOWN)
        if column.go_type == "bool":
            return pc.if_else(pa.array(column.array), "true", "false")
        if column.go_type in ("int", "int64"):
            return pa.array(column.array).cast(pa.string())
    found = distinct(column, 0)
    return raw_texts(found.codes, [_shown(value) for value in found.values])


def _shown(value: object) -> str:
    return "<no value>" if value is None else printed(value)


def _printf(pattern: Column, *columns: Column) -> Column | None:
    """Only patterns whose verbs are `%s`, `%v` and `%d`, with or without a width, and fit their arguments."""
    if not isinstance(pattern, Constant):
        return None
    parts: list[pa.Array | str] = []
    at = used = 0
    for verb in _VERB.finditer(pattern.value):
        parts.append(pattern.value[at : verb.start()])
        at = verb.end()
        if verb[3] == "%" and verb[0] == "%%":
            parts.append("%")
            continue
        if verb[3] is None or verb[3] == "%" or used >= len(columns) or verb[2].startswith("0"):
            return None
        shown = _verb(verb[3], columns[used])
        used += 1
        if shown is None:
            return None
        parts.append(_padded(shown, int(verb[2] or 0), left=verb[1] == "-"))
    parts.append(pattern.value[at:])
    return _joined(parts) if used == len(columns) else None


def _verb(verb: str, column: Column) -> pa.Array | str | None:
    if isinstance(column, Texts):
        return plain_texts(column) if verb in "sv" else None
    if isinstance(column, Constant):
        return column.value if isinstance(column.value, str) and verb in "sv" else None
    if isinstance(column, Numbers) and column.go_type in ("int", "int64") and verb in "vd":
        return pa.array(column.array).cast(pa.string())
    return None


def _padded(text: pa.Array | str, width: int, *, left: bool) -> pa.Array | str:
    if isinstance(text, str):
        return text.ljust(width) if left else text.rjust(width)
    return (pc.utf8_rpad if left else pc.utf8_lpad)(text, width, " ") if width else text


def _joined(parts: Sequence[pa.Array | str]) -> Column | None:
    kept = [part for part in parts if not isinstance(part, str) or part]
    if all(isinstance(part, str) for part in kept):
        return None
    return Texts(pc.binary_join_element_wise(*kept, "")) if len(kept) > 1 else Texts(kept[0])


def _print(*columns: Column) -> Column | None:
    """Only texts, between which `print` puts no spaces."""
    parts = [_verb("s", column) for column in columns]
    return None if any(part is None for part in parts) else _joined([part for part in parts if part is not None])


VECTORISED: dict[str, Vectorised] = {
    "printf": _printf,
    "print": _print,
}
