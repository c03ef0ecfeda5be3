"""Take logfmt apart: `time=… level=info msg="a b" err=x`, all lines at a time."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints

_KEY = r"[A-Za-z_@][\w.@/\[\]-]*"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
#: Lines that are logfmt: pairs from the beginning, one of them a message, a level or a time.
LOGFMT = (
    rf'^\s*(?:{_KEY}=(?:{_QUOTED}|[^\s"]*)\s+)*(?:msg|message|level|lvl|severity|time|ts|t|timestamp|at|event)='
    rf'(?:{_QUOTED}|[^\s"]*)\s+{_KEY}='
)
_PAIR = rf'(?s)^\s*(?P<key>{_KEY})(?:=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S*)))?(?P<rest>(?:\s.*)?)$'
_PAIRS = re.compile(rf'(?:^|\s)({_KEY})=(?:{_QUOTED}|[^\s"]\S*|)(?=\s|$)')
#: Lines of one program often have the same keys, and are then taken apart by one regular expression, four times as
#: fast. This many such layouts are tried.
_MOST_LAYOUTS = 8
#: Pairs of one line that are taken apart. What follows stays together under the key `rest`.
_MOST_PAIRS = 100

Mask = npt.NDArray[np.bool_]
Pairs = list[tuple[str, Ints, pa.Array]]


def logfmt_pairs(texts: pa.Array) -> Pairs:
    """Return the pairs as (key, rows, values). Words without a value are dropped."""
    pairs: Pairs = []
    rows = np.arange(len(texts))
    for _ in range(_MOST_LAYOUTS):
        keys = _layout(texts[0].as_py()) if len(texts) else None
        if keys is None:
            break
        found, left = _of_layout(texts, rows, keys)
        pairs += found
        texts, rows = texts.filter(pa.array(left)), rows[left]
    return pairs + _one_by_one(texts, rows)


def _layout(text: str) -> list[str] | None:
    """Return the keys of a line, or None where it has anything but pairs, or a key twice."""
    keys = [match[1] for match in _PAIRS.finditer(text)]
    is_whole = _PAIRS.sub("", text).strip() == ""
    return keys if is_whole and len(set(keys)) == len(keys) <= _MOST_PAIRS else None


def _of_layout(texts: pa.Array, rows: Ints, keys: list[str]) -> tuple[Pairs, Mask]:
    """Take all lines apart that have exactly these keys. Return the pairs, and a mask of the other lines."""
    pattern = r"\s+".join(
        rf'{re.escape(key)}=(?:"(?P<q{i}>(?:[^"\\]|\\.)*)"|(?P<p{i}>[^\s"]\S*|))' for i, key in enumerate(keys)
    )
    parts = pc.extract_regex(texts, rf"(?s)^\s*{pattern}\s*$")
    hit = parts.is_valid().to_numpy(zero_copy_only=False)
    parts = parts.filter(pa.array(hit))
    pairs: Pairs = []
    for i, key in enumerate(keys):
        quoted = unescaped(parts.field(f"q{i}"))
        pairs.append((key, rows[hit], pc.if_else(pc.equal(quoted, ""), parts.field(f"p{i}"), quoted)))
    return pairs, ~hit


def _one_by_one(texts: pa.Array, rows: Ints) -> Pairs:
    """Take one pair after the other from the beginning of all lines."""
    pairs: Pairs = []
    for _ in range(_MOST_PAIRS):
        if not len(rows):
            return pairs
        parts = pc.extract_regex(texts, _PAIR)
        hit = parts.is_valid().to_numpy(zero_copy_only=False)
        pairs += _by_key("rest", rows[~hit], pc.utf8_trim_whitespace(texts.filter(pa.array(~hit))))
        rows, parts = rows[hit], parts.filter(pa.array(hit))
        quoted = unescaped(parts.field("quoted"))
        values = pc.if_else(pc.equal(quoted, ""), parts.field("plain"), quoted)
        pairs += grouped(parts.field("key"), rows, values)
        texts = parts.field("rest")
        more = pc.not_equal(pc.utf8_ltrim_whitespace(texts), "").to_numpy(zero_copy_only=False)
        texts, rows = texts.filter(pa.array(more)), rows[more]
    return pairs + _by_key("rest", rows, pc.utf8_trim_whitespace(texts))


def _by_key(key: str, rows: Ints, values: pa.Array) -> Pairs:
    return [(key, rows, values)] if len(rows) else []


def grouped(keys: pa.Array, rows: Ints, values: pa.Array) -> Pairs:
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        return [(names[0], rows, values)]
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return [
        (name, rows[at], values.take(pa.array(at)))
        for code, name in enumerate(names)
        if len(at := order[starts[code] : starts[code + 1]])
    ]


def unescaped(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(texts, "\\")).as_py():
        return texts
    for written, meant in (("\\\\", "\0"), ('\\"', '"'), ("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r"), ("\0", "\\")):
        texts = pc.replace_substring(texts, written, meant)
    return texts
