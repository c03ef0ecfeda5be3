"""Texts: case, trimming, cutting, searching and padding."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.stages.template.column_calls.signature import Vectorised, on_values
from lakerunner.query.logql.stages.template.columns import Column, Constant, Numbers, Texts, plain_texts, text_lengths
from lakerunner.query.logql.stages.template.functions.texts import SPACES

_NO_END = (1 << 31) - 1
_ASCII_SPACES = "".join(c for c in SPACES if c.isascii())


def _is_ascii(array: pa.StringArray) -> bool:
    return bool(pc.all(pc.string_is_ascii(array)).as_py() is not False)


def _if_ascii(change: Callable[[pa.StringArray], pa.Array]) -> Callable[[pa.StringArray], pa.Array | None]:
    return lambda array: change(array) if _is_ascii(array) else None


def _text_change(change: Callable[[pa.StringArray], pa.Array]) -> Vectorised:
    """A function of one text that has a vectorised form for ASCII."""

    def call(texts: Column) -> Column | None:
        return on_values(texts, _if_ascii(change)) if isinstance(texts, Texts) else None

    return call


def _text_with(change: Callable[[pa.StringArray, str], pa.Array | None], *, text_first: bool) -> Vectorised:
    """A function of a text and a constant text."""

    def call(first: Column, second: Column) -> Column | None:
        texts, other = (first, second) if text_first else (second, first)
        if not isinstance(texts, Texts) or not isinstance(other, Constant):
            return None
        return on_values(texts, lambda array: change(array, other.value))

    return call


def _trimmed_with(trim: Callable[..., pa.Array]) -> Callable[[pa.StringArray, str], pa.Array | None]:
    return lambda array, cut: trim(array, characters=cut) if cut and cut.isascii() else None


def _without_prefix(array: pa.StringArray, prefix: str) -> pa.Array:
    starts = pc.starts_with(array, prefix)
    return pc.if_else(starts, _masked_text(_bytes_of(array, len(prefix.encode())), starts), array)


def _without_suffix(array: pa.StringArray, suffix: str) -> pa.Array | None:
    size = len(suffix.encode())
    if not size:
        return array
    ends = pc.ends_with(array, suffix)
    return pc.if_else(ends, _masked_text(_bytes_of(array, 0, -size), ends), array)


def _masked_text(raw: pa.BinaryArray, kept: pa.Array) -> pa.StringArray:
    """Bytes as texts where they are kept: elsewhere they may end within a character."""
    return pc.if_else(kept, raw, b"").cast(pa.string())


def _tested(test: Callable[[pa.Array, str], pa.Array]) -> Vectorised:
    """Whether a text has a constant text somewhere."""

    def call(part: Column, texts: Column) -> Column | None:
        if not isinstance(texts, Texts) or not isinstance(part, Constant):
            return None
        array = texts.array
        if pa.types.is_dictionary(array.type):
            found = test(array.dictionary, part.value).take(array.indices)
        else:
            found = test(array, part.value)
        return Numbers(found.to_numpy(zero_copy_only=False), "bool")

    return call


def _replace(old: Column, new: Column, texts: Column) -> Column | None:
    if not isinstance(texts, Texts) or not isinstance(old, Constant) or not isinstance(new, Constant):
        return None
    if not old.value:
        return None
    return on_values(texts, lambda array: pc.replace_substring(array, old.value, new.value))


def _replace_some(texts: Column, old: Column, new: Column, count: Column) -> Column | None:
    if not isinstance(count, Constant) or count.value >= 0:
        return None
    return _replace(old, new, texts)


def _cut(start: int, end: int | None) -> Callable[[pa.StringArray], pa.Array]:
    return lambda array: _bytes_of(array, start, end).cast(pa.string())


def _bytes_of(array: pa.StringArray, start: int, end: int | None = None) -> pa.BinaryArray:
    # Without an end, and with one of more than 31 bits, Arrow miscounts its buffer.
    end = _NO_END if end is None else min(end, _NO_END)
    return pc.binary_slice(array.cast(pa.binary()), max(start, -_NO_END), end)


def _trunc(count: Column, texts: Column) -> Column | None:
    if not isinstance(texts, Texts) or not isinstance(count, Constant):
        return None
    if count.value < 0:
        # All of a shorter text, which slicing gives too.
        return on_values(texts, _if_ascii(_cut(count.value, None)))
    return on_values(texts, _if_ascii(_cut(0, count.value)))


def _substr(start: Column, end: Column, texts: Column) -> Column | None:
    if not isinstance(texts, Texts) or not isinstance(start, Constant) or not isinstance(end, Constant):
        return None
    if start.value != 0 or end.value < 0:
        return None
    return on_values(texts, _if_ascii(_cut(0, end.value)))


def _align(pad: Callable[..., pa.Array], cut: Callable[[pa.Array, int], pa.Array]) -> Vectorised:
    def call(count: Column, texts: Column) -> Column | None:
        if not isinstance(texts, Texts) or not isinstance(count, Constant) or not 0 < count.value <= 10_000:
            return None
        return on_values(texts, lambda array: cut(pad(array, count.value, " "), count.value))

    return call


def _length(texts: Column) -> Column | None:
    if not isinstance(texts, Texts):
        return None
    return Numbers(text_lengths(texts), "int")


def _default(fallback: Column, *given: Column) -> Column | None:
    if len(given) != 1 or not isinstance(given[0], Texts):
        return None
    texts = plain_texts(given[0])
    if isinstance(fallback, Constant) and isinstance(fallback.value, str):
        other: pa.Array | str = fallback.value
    elif isinstance(fallback, Texts):
        other = plain_texts(fallback)
    else:
        return None
    return Texts(pc.if_else(pc.equal(texts, ""), other, texts))


_UPPER, _LOWER = _text_change(pc.ascii_upper), _text_change(pc.ascii_lower)
_TRIM = _text_change(lambda array: pc.ascii_trim(array, characters=_ASCII_SPACES))
_BOTH, _LEFT, _RIGHT = map(_trimmed_with, (pc.utf8_trim, pc.utf8_ltrim, pc.utf8_rtrim))

VECTORISED: dict[str, Vectorised] = {
    "lower": _LOWER,
    "ToLower": _LOWER,
    "upper": _UPPER,
    "ToUpper": _UPPER,
    "trim": _TRIM,
    "TrimSpace": _TRIM,
    "Trim": _text_with(_BOTH, text_first=True),
    "TrimLeft": _text_with(_LEFT, text_first=True),
    "TrimRight": _text_with(_RIGHT, text_first=True),
    "TrimPrefix": _text_with(_without_prefix, text_first=True),
    "TrimSuffix": _text_with(_without_suffix, text_first=True),
    "trimAll": _text_with(_BOTH, text_first=False),
    "trimPrefix": _text_with(_without_prefix, text_first=False),
    "trimSuffix": _text_with(_without_suffix, text_first=False),
    "replace": _replace,
    "Replace": _replace_some,
    "trunc": _trunc,
    "substr": _substr,
    "contains": _tested(pc.match_substring),
    "hasPrefix": _tested(pc.starts_with),
    "hasSuffix": _tested(pc.ends_with),
    "alignLeft": _align(pc.utf8_rpad, lambda array, count: pc.utf8_slice_codeunits(array, 0, count)),
    "alignRight": _align(pc.utf8_lpad, lambda array, count: pc.utf8_slice_codeunits(array, -count)),
    "len": _length,
    "default": _default,
}
