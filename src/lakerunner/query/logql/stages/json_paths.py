"""`json x="a.b[0]"`: labels of the values at given paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Check, Entries, valid
from lakerunner.query.logql.field_paths import parse_json_path
from lakerunner.query.logql.stages import json_kernel, json_path_kernel
from lakerunner.query.logql.stages.fields import Wanted, joined, room_for_fields, with_fields, with_parser_error
from lakerunner.query.logql.stages.json_fields import JSON_ERROR
from lakerunner.query.logql.stages.texts import slices

_ROWS_AT_ONCE = 1 << 14
_DETAILS = pa.array(json_kernel.ERRORS)


def compiled_paths(extractions: Sequence[ast.Extraction]) -> tuple[Any, ...]:
    """The paths as the kernel reads them."""
    paths = [parse_json_path(each.expression) for each in extractions]
    texts = [_step_text(step).encode() for path in paths for step in path]
    bounds = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    steps = np.cumsum([0, *map(len, paths)], dtype=np.int64)
    indexes = np.array([_index(step) for path in paths for step in path], np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), bounds, steps, indexes


def _step_text(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else step


def _index(step: str | int) -> int:
    return step if isinstance(step, int) else -1


def json_values(
    entries: Entries, extractions: Sequence[ast.Extraction], paths: tuple[Any, ...], wanted: Wanted, check: Check
) -> Entries:
    """The entries with a label for each path. It is empty where the line has no such value, or null."""
    data, offsets = text_bytes(entries.lines)
    errors, chunks = np.zeros(len(entries), np.int8), []
    for begin, end in slices(offsets):
        check()
        while begin < end:
            out = room_for_fields(min(end - begin, _ROWS_AT_ONCE) * len(extractions))
            begin, used, _ = json_path_kernel.values_at(data, offsets, begin, end, paths, out, errors)
            chunks.append(out[:used])
    labels = [each.label for each in extractions]
    # The same label may be made from two paths. The later one in the line counts.
    made = with_fields(entries, joined(data, chunks), labels, wanted, check, last_wins=True, replaces=True)
    objects = (errors != json_path_kernel.NO_START) & (np.diff(offsets) > 0)
    for label in labels if wanted is None else [label for label in labels if label in wanted]:
        had = made.label(label)
        missing = objects if had is None else objects & ~valid(had)
        if missing.any():
            made = made.with_label(label, pc.if_else(pa.array(missing), "", pa.scalar(None, pa.string())))
    made = with_parser_error(made, errors == json_path_kernel.NO_START, JSON_ERROR, None)
    wrong = objects & (errors != json_kernel.FINE)
    return with_parser_error(made, wrong, JSON_ERROR, _DETAILS.take(pa.array(np.where(wrong, errors, 0))))
