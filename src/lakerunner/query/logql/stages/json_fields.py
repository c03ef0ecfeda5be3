"""`json` without arguments: every field of the line becomes a label, nested names joined by `_`; and `unpack`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.text_bytes import Bytes, Offsets, text_bytes
from lakerunner.query.logql.entries import Check, Entries, Mask
from lakerunner.query.logql.stages import json_kernel
from lakerunner.query.logql.stages.field_kernels import JSON_ESCAPED, JSON_LINE, KIND, ROOT
from lakerunner.query.logql.stages.fields import (
    Fields,
    Indices,
    Keys,
    Wanted,
    enough_bits,
    parsed_enough,
    sanitized,
    scanned,
    with_fields,
    with_parser_error,
)

JSON_ERROR = "JSONParserErr"
_NOT_AN_OBJECT = "expecting json object(6), but it is not"
#: The field that `unpack` makes the line of.
_ENTRY = "_entry"
_DETAILS = pa.array(json_kernel.ERRORS)
#: Characters of a name. Nested keys repeat those around them, so that without a limit a line could fill the memory.
_MAX_NAME = 1 << 16


def json_fields(entries: Entries, wanted: Wanted, check: Check) -> Entries:
    enough = enough_bits(entries, wanted)
    fields, keys, errors = _parsed(entries.lines, False, enough, flat_names, wanted, check)
    made = with_fields(entries, fields, flat_names(keys), wanted, check)
    wrong = (errors != json_kernel.FINE) & ~parsed_enough(made, wanted)
    return with_parser_error(made, wrong, JSON_ERROR, _DETAILS.take(pa.array(errors)))


def flat_names(keys: Keys) -> list[str]:
    """The label of each key: the parts of its path, sanitized and joined by `_`. Blank parts are left out."""
    names: list[str] = []
    for parent, text in zip(keys.parents.tolist(), keys.texts, strict=True):
        key, prefix = unescaped(text), "" if parent == ROOT else names[parent]
        # Only what begins a name is protected from beginning with a digit.
        name = sanitized(key)[1 if prefix and key.strip()[:1].isdigit() else 0 :]
        names.append("_".join(part for part in (prefix, name) if part)[:_MAX_NAME])
    return names


def unescaped(key: bytes) -> str:
    """The text of a key as it stands in the line."""
    text = key.decode(errors="replace")
    # The kernel has seen that the escapes are well-formed.
    return str(json.loads(f'"{text}"', strict=False)) if "\\" in text else text


def unpacked(entries: Entries, wanted: Wanted, check: Check) -> Entries:
    """`unpack`: the texts of the outermost object become labels if there is an `_entry`, which becomes the line."""
    data, offsets = text_bytes(entries.lines)
    fields, keys, errors = _parsed(entries.lines, True, -1, _raw_names, None, check)
    names = _raw_names(keys)
    entry_keys = np.array([name == _ENTRY for name in names], np.bool_)
    is_entry = entry_keys[fields.keys] if len(names) else np.zeros(0, np.bool_)
    texts = fields.only(is_entry)
    errors[texts.rows[json_kernel.malformed(data, texts.parts)]] = json_kernel.BAD_ESCAPE
    sizes = np.diff(offsets)
    begins = np.flatnonzero(sizes)
    objects = np.zeros(len(entries), np.bool_)
    objects[begins] = data[offsets[:-1][begins]] == ord("{")
    details = _DETAILS.take(pa.array(errors))
    if not objects.all():
        details = pc.if_else(pa.array(objects), details, _NOT_AN_OBJECT)
    wrong = (sizes > 0) & (~objects | (errors != json_kernel.FINE))
    packed = np.zeros(len(entries), np.bool_)
    packed[fields.rows[is_entry]] = True
    good = fields.only((packed & ~wrong)[fields.rows] & ~is_entry)
    made = with_fields(entries, good, [sanitized(name) for name in names], wanted, check, clashes=names, last_wins=True)
    return with_parser_error(_with_entry(made, texts, wrong, check), wrong, JSON_ERROR, details)


def _with_entry(entries: Entries, texts: Fields, wrong: Mask, check: Check) -> Entries:
    lines = texts.only(~wrong[texts.rows])
    # Unlike in a label, U+FFFD stays what it is.
    lines.parts[lines.parts[:, KIND] == JSON_ESCAPED, KIND] = JSON_LINE
    only = with_fields(
        Entries(entries.times_ns, entries.lines, {}),
        lines,
        [_ENTRY] * (1 + int(texts.keys.max(initial=0))),
        None,
        check,
        last_wins=True,
    )
    found = only.label(_ENTRY)
    return entries if found is None else entries.with_lines(pc.coalesce(found, entries.lines))


def _raw_names(keys: Keys) -> list[str]:
    return [unescaped(text) for text in keys.texts]


def _parsed(
    lines: pa.StringArray, packed: bool, enough: int, name_of: Any, wanted: Wanted, check: Check
) -> tuple[Fields, Keys, Any]:
    errors = np.zeros(len(lines), np.int8)

    def scan(
        data: Bytes, offsets: Offsets, begin: int, end: int, table: Indices, keys: Indices, count: int, out: Indices
    ) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = json_kernel.flatten(
            data, offsets, begin, end, packed, table, keys, count, enough, out, errors
        )
        return found

    fields, keys = scanned(lines, scan, check, name_of, wanted)
    return fields, keys, errors
