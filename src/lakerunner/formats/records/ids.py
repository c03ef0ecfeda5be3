"""Trace and span ids of any writer as lower-case hex, padded to their full length."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import as_text
from lakerunner.formats.records.records import Mask, Records

_HEX = re.compile(r"[0-9a-f]{1,32}")
#: Google Cloud names a trace by its project; AWS X-Ray writes a version and the time before the id.
_GOOGLE = re.compile(r"projects/[^/]+/traces/([0-9a-f]{32})")
_XRAY = re.compile(r"(?:root=)?1-([0-9a-f]{8})-([0-9a-f]{24})")


def ids(records: Records, keys: Sequence[str], digits: int) -> pa.Array:
    """Pick a field of ids. Zeros and blanks are null. Numbers, and all ids of Datadog, are decimal."""
    decimal = [key for key in keys if key.startswith("dd.") or ".dd." in key]
    # A typed number is decimal too, whatever its key.
    numbers = records.text(keys, lambda values: np.full(len(values), pa.types.is_integer(values.type)))
    numbers = pc.coalesce(numbers, records.text(decimal, _are_ids))
    others = records.text([key for key in keys if key not in decimal], _are_ids)
    return pc.coalesce(hex_ids(numbers, digits, is_decimal=True), hex_ids(others, digits))


def _are_ids(values: pa.Array) -> Mask:
    """Return a mask of what may be an id. Elsewhere `trace` is a stack trace, `span` an object."""
    texts = as_text(values).dictionary_encode()
    known = np.array(
        [len(text or "") <= 128 and " " not in (text or "").strip() for text in texts.dictionary.to_pylist()]
    )
    mask: Mask = known[texts.indices.to_numpy(zero_copy_only=False)] if len(known) else np.zeros(len(values), np.bool_)
    return mask


def hex_ids(texts: pa.Array, digits: int, *, is_decimal: bool = False) -> pa.Array:
    """Return ids as hex of that many digits; null where there is none."""
    encoded = texts.dictionary_encode()
    found = [hex_id(text, digits, is_decimal=is_decimal) for text in encoded.dictionary.to_pylist()]
    return pa.array(found, pa.string()).take(encoded.indices)


def hex_id(text: str | None, digits: int, *, is_decimal: bool = False) -> str | None:
    """Return an id as hex of that many digits.

    >>> hex_id("4BF92F3577B34DA6", 32), hex_id("12345", 16, is_decimal=True)
    ('00000000000000004bf92f3577b34da6', '0000000000003039')
    """
    plain = (text or "").strip().lower()
    if found := _GOOGLE.fullmatch(plain) or _XRAY.match(plain):
        plain = "".join(found.groups())
    plain = plain.replace("-", "")
    # 16 and 32 digits are hex already, even without a letter among them.
    if (
        plain.isdecimal()
        and plain.isascii()
        and len(plain) <= 39
        and ((is_decimal and len(plain) < 32) or 16 < len(plain) <= 20)
    ):
        plain = f"{int(plain):x}"
    if not plain.strip("0"):
        return None
    if not _HEX.fullmatch(plain):
        return plain
    return plain.zfill(digits)
