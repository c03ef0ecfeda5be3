"""Entries for tests of templates, and what templates gave for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lakerunner.query.logql.entries import Category, Entries
from lakerunner.query.logql.stages.template import parse
from lakerunner.query.logql.stages.template.columns import Formatted
from lakerunner.query.logql.stages.template.go_types import Labels, normal, runes
from lakerunner.query.logql.stages.template.interpreter import Entry, TemplateError, execute

#: The text, or the error.
Outcome: TypeAlias = tuple[str | None, str | None]

THE_ENTRY = Entry(
    Labels(
        a="hello world",
        n="42",
        f="2.5",
        e="",
        u="李雷 Zoë",
        neg="-7",
        d="1m30s",
        s="7kB",
        ts="2026-11-01T10:59:30+02:00",
        j='{"x":[1,2,{"y":null}],"z":"q","t":true,"n":1234567}',
        b="a\x00b<&>\"'",
        multi="l1\nl2",
    ),
    "the LINE é",
    1_793_530_770_666_007_378,
)
#: Others, so that columns hold different values, and some entries fail where others do not.
OTHERS = (
    Entry(Labels(a="abc", n="7", f="x", j="[1,2]"), "", 0),
    Entry(Labels(a="é", n="", e="full", u="ascii", neg="9223372036854775807", d="5", s="5 zz", j="{bad"), "x", -5),
    Entry(Labels(), "only a line", 1_793_530_770_000_000_000),
    Entry(Labels(a="hello world", n="0x1F", f="1e300", d="1h", s="2 MiB", ts="2026-11-01"), "x", 1),
)


def entries_of(entries: Sequence[Entry]) -> Entries:
    """The entries as columns, every second label with a dictionary."""
    columns = {}
    for number, name in enumerate(sorted({name for entry in entries for name in entry.labels})):
        values = pa.array([entry.labels.get(name) for entry in entries], pa.string())
        columns[Category.METADATA, name] = values.dictionary_encode() if number % 2 else values
    times = np.array([entry.time_ns for entry in entries], np.int64)
    return Entries(times, pa.array([entry.line for entry in entries], pa.string()), columns)


def interpreted(template: str, entry: Entry) -> Outcome:
    try:
        return runes(normal(execute(parse(template), "line", entry))), None
    except TemplateError as reason:
        return None, str(reason)


def outcomes(made: Formatted) -> list[Outcome]:
    texts = [_text(each) for each in made.texts.to_pylist()]
    errors = [None] * len(texts) if made.errors is None else made.errors.to_pylist()
    return [(text if error is None else None, error) for text, error in zip(texts, errors, strict=True)]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else runes(value.decode(errors="surrogateescape"))
