"""Vectorised forms of the functions that templates use most.

Each takes columns, at least one of them not constant, and gives None where it has no vectorised form for them; then
the function is called once for each distinct tuple of arguments. Equal to the plain function by test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Ints
from lakerunner.query.logql.stages.template.columns import (
    Column,
    Constant,
    Numbers,
    Texts,
    distinct,
    plain_texts,
    raw_texts,
    text_lengths,
)
from lakerunner.query.logql.stages.template.functions.regexps import arrow_template, steps
from lakerunner.query.logql.stages.template.functions.texts import SPACES
from lakerunner.query.logql.stages.template.go_fmt import printed
from lakerunner.query.logql.stages.template.go_layout import chunks, formatted
from lakerunner.query.logql.stages.template.go_time import Time
from lakerunner.query.series.patterns import MAX_STEPS

Vectorised: TypeAlias = Callable[..., Column | None]

#: How Go shows a time.
_SHOWN = "2006-01-02 15:04:05.999999999 -0700 MST"
_SECOND_NS = 1_000_000_000
_NO_END = (1 << 31) - 1
_ASCII_SPACES = "".join(c for c in SPACES if c.isascii())
#: Texts that are integers for Arrow and for Go alike.
_PLAIN_INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"
_VERB = re.compile(r"%(-?)([0-9]*)([svd%])|%")
#: Assertions may match between characters, where replacing differs.
_MAY_BE_EMPTY = re.compile(r"\\[bBAz]|\^|\$|\(\?m")


def printed_column(column: Column) -> pa.Array | str:
    """The texts that an action writes."""
    if isinstance(column, Constant):
        return _shown(column.value)
    if isinstance(column, Texts):
        return plain_texts(column)
    if isinstance(column, Numbers):
        if column.go_type == "time.Time":
            return time_texts(column.array.astype(np.int64), _SHOWN)
        if column.go_type == "bool":
            return pc.if_else(pa.array(column.array), "true", "false")
        if column.go_type in ("int", "int64"):
            return pa.array(column.array).cast(pa.string())
    found = distinct(column, 0)
    return raw_texts(found.codes, [_shown(value) for value in found.values])


def _shown(value: object) -> str:
    return "<no value>" if value is None else printed(value)


def time_texts(times_ns: Ints, layout: str) -> pa.StringArray:
    """Times in UTC by a layout: once for each second, and fractions of seconds with numpy."""
    seconds, nanos = np.divmod(times_ns, _SECOND_NS)
    found, codes = np.unique(seconds, return_inverse=True)
    index = pa.array(codes)
    parts: list[pa.Array] = []
    whole = ""
    for literal, part in chunks(layout):
        if part[:1] not in (".", ","):
            whole += literal + part
            continue
        parts += (_by_second(found, index, whole + literal), _fractions(nanos, part))
        whole = ""
    parts.append(_by_second(found, index, whole))
    return pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else parts[0]


def _by_second(seconds: Ints, index: pa.Array, layout: str) -> pa.StringArray:
    texts = [formatted(Time(second), layout) for second in seconds.tolist()] if layout else [""] * len(seconds)
    return pa.array(texts, pa.string()).take(index)


def _fractions(nanos: Ints, part: str) -> pa.StringArray:
    digits = pc.utf8_lpad(pa.array(nanos).cast(pa.string()), 9, "0")
    width = len(part) - 1
    digits = pc.utf8_slice_codeunits(digits, 0, width) if width < 9 else pc.utf8_rpad(digits, width, "0")
    if part[1] == "0":
        return pc.binary_join_element_wise(part[0], digits, "")
    digits = pc.utf8_rtrim(digits, "0")
    return pc.if_else(pc.equal(digits, ""), "", pc.binary_join_element_wise(part[0], digits, ""))


# -- texts -----------------------------------------------------------------------------------------------------------


def _on_values(texts: Texts, change: Callable[[pa.StringArray], pa.Array | None]) -> Column | None:
    """The change of a text, for each value of the dictionary if there is one."""
    array = texts.array
    if pa.types.is_dictionary(array.type):
        changed = change(array.dictionary)
        return None if changed is None else Texts(pa.DictionaryArray.from_arrays(array.indices, changed))
    changed = change(array)
    return None if changed is None else Texts(changed)


def _is_ascii(array: pa.StringArray) -> bool:
    return bool(pc.all(pc.string_is_ascii(array)).as_py() is not False)


def _if_ascii(change: Callable[[pa.StringArray], pa.Array]) -> Callable[[pa.StringArray], pa.Array | None]:
    return lambda array: change(array) if _is_ascii(array) else None


def _text_change(change: Callable[[pa.StringArray], pa.Array]) -> Vectorised:
    """A function of one text that has a vectorised form for ASCII."""

    def call(texts: Column) -> Column | None:
        return _on_values(texts, _if_ascii(change)) if isinstance(texts, Texts) else None

    return call


def _text_with(change: Callable[[pa.StringArray, str], pa.Array | None], *, text_first: bool) -> Vectorised:
    """A function of a text and a constant text."""

    def call(first: Column, second: Column) -> Column | None:
        texts, other = (first, second) if text_first else (second, first)
        if not isinstance(texts, Texts) or not isinstance(other, Constant):
            return None
        return _on_values(texts, lambda array: change(array, other.value))

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
    return _on_values(texts, lambda array: pc.replace_substring(array, old.value, new.value))


def _replace_some(texts: Column, old: Column, new: Column, count: Column) -> Column | None:
    if not isinstance(count, Constant) or count.value >= 0:
        return None
    return _replace(old, new, texts)


def _cut(start: int, end: int | None) -> Callable[[pa.StringArray], pa.Array]:
    return lambda array: _bytes_of(array, start, end).cast(pa.string())


def _bytes_of(array: pa.StringArray, start: int, end: int | None = None) -> pa.BinaryArray:
    # Without an end, Arrow miscounts its buffer.
    return pc.binary_slice(array.cast(pa.binary()), start, _NO_END if end is None else end)


def _trunc(count: Column, texts: Column) -> Column | None:
    if not isinstance(texts, Texts) or not isinstance(count, Constant):
        return None
    if count.value < 0:
        # All of a shorter text, which slicing gives too.
        return _on_values(texts, _if_ascii(_cut(count.value, None)))
    return _on_values(texts, _if_ascii(_cut(0, count.value)))


def _substr(start: Column, end: Column, texts: Column) -> Column | None:
    if not isinstance(texts, Texts) or not isinstance(start, Constant) or not isinstance(end, Constant):
        return None
    if start.value != 0 or end.value < 0:
        return None
    return _on_values(texts, _if_ascii(_cut(0, end.value)))


def _align(pad: Callable[..., pa.Array], cut: Callable[[pa.Array, int], pa.Array]) -> Vectorised:
    def call(count: Column, texts: Column) -> Column | None:
        if not isinstance(texts, Texts) or not isinstance(count, Constant) or not 0 < count.value <= 10_000:
            return None
        return _on_values(texts, lambda array: cut(pad(array, count.value, " "), count.value))

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


# -- regular expressions ---------------------------------------------------------------------------------------------


def _replace_pattern(pattern: Column, texts: Column, new: Column) -> Column | None:
    """Only for patterns that never match the empty text."""
    if not isinstance(pattern, Constant) or not isinstance(new, Constant) or not _vectorises(pattern.value, texts):
        return None
    return _replaced(pattern.value, texts, arrow_template(pattern.value, new.value))


def _replace_pattern_literal(pattern: Column, texts: Column, new: Column) -> Column | None:
    if not isinstance(pattern, Constant) or not isinstance(new, Constant) or not _vectorises(pattern.value, texts):
        return None
    return _replaced(pattern.value, texts, new.value.replace("\\", "\\\\"))


def _replaced(pattern: str, texts: Column, replacement: str | None) -> Column | None:
    if replacement is None or not isinstance(texts, Texts):
        return None
    return _on_values(texts, lambda array: pc.replace_substring_regex(array, pattern, replacement))


def _count(pattern: Column, texts: Column) -> Column | None:
    if not isinstance(texts, Texts) or not isinstance(pattern, Constant) or not _vectorises(pattern.value, texts):
        return None
    found = pc.count_substring_regex(plain_texts(texts), pattern.value)
    return Numbers(found.to_numpy(zero_copy_only=False).astype(np.int64), "int")


def _vectorises(pattern: str, texts: Column) -> bool:
    """Whether Arrow finds what Go does: the pattern is valid and affordable, and needs a character to match."""
    if not isinstance(texts, Texts) or _MAY_BE_EMPTY.search(pattern):
        return False
    cost = steps(pattern, int(text_lengths(texts).max(initial=0)))
    return cost is not None and cost <= MAX_STEPS and not pc.match_substring_regex(pa.scalar(""), pattern).as_py()


# -- comparisons -----------------------------------------------------------------------------------------------------


def _compare(on_arrow: Callable[..., pa.Array], on_numpy: Callable[..., object]) -> Vectorised:
    def call(*columns: Column) -> Column | None:
        if len(columns) != 2:
            return None
        texts = [_comparable_text(column) for column in columns]
        if texts[0] is not None and texts[1] is not None:
            return Numbers(on_arrow(*texts).to_numpy(zero_copy_only=False), "bool")
        numbers = [_comparable_number(column) for column in columns]
        if numbers[0] is None or numbers[1] is None or numbers[0][0] != numbers[1][0]:
            return None
        return Numbers(np.asarray(on_numpy(numbers[0][1], numbers[1][1])), "bool")

    return call


def _comparable_text(column: Column) -> pa.Array | str | None:
    if isinstance(column, Texts):
        return plain_texts(column)
    return column.value if isinstance(column, Constant) and isinstance(column.value, str) else None


def _comparable_number(column: Column) -> tuple[str, object] | None:
    """What kind a number is compared as, and the number."""
    if isinstance(column, Numbers):
        kind = {"int": "int", "int64": "int", "float64": "float"}.get(column.go_type)
        return None if kind is None else (kind, column.array)
    if isinstance(column, Constant) and type(column.value) in (int, float):
        return type(column.value).__name__, column.value
    return None


def _not(column: Column) -> Column | None:
    if isinstance(column, Numbers) and column.go_type == "bool":
        return Numbers(~column.array.astype(np.bool_), "bool")
    return None


# -- numbers ---------------------------------------------------------------------------------------------------------


def _integers(column: Column) -> Ints | int | None:
    """The numbers that `add` and its like take a column for."""
    if isinstance(column, Constant):
        return int(column.value) if type(column.value) is int else None
    if isinstance(column, Numbers):
        return column.array.astype(np.int64) if column.go_type in ("int", "int64") else None
    if not isinstance(column, Texts):
        return None
    array = column.array
    values = array.dictionary if pa.types.is_dictionary(array.type) else array
    if pc.all(pc.match_substring_regex(values, _PLAIN_INTEGER)).as_py() is False:
        return None
    numbers: Ints = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers[array.indices.to_numpy(zero_copy_only=False)] if values is not array else numbers


def _arithmetic(combine: Callable[[Ints, Ints], Ints]) -> Vectorised:
    """A function of integers, which wrap around as numpy's do."""

    def call(*columns: Column) -> Column | None:
        numbers = [_integers(column) for column in columns]
        if any(number is None for number in numbers):
            return None
        result = np.asarray(numbers[0], np.int64)
        with np.errstate(over="ignore"):
            for number in numbers[1:]:
                result = combine(result, np.asarray(number, np.int64))
        return Numbers(result, "int64")

    return call


def _to_int(column: Column) -> Column | None:
    numbers = _integers(column)
    return Numbers(numbers, "int") if isinstance(numbers, np.ndarray) else None


# -- times -----------------------------------------------------------------------------------------------------------


def _date(layout: Column, times: Column) -> Column | None:
    if not isinstance(layout, Constant) or not isinstance(times, Numbers) or times.go_type != "time.Time":
        return None
    return Texts(time_texts(times.array.astype(np.int64), layout.value))


def _method_format(times: Column, layout: Column) -> Column | None:
    return _date(layout, times)


def _epoch(unit_ns: int, *, as_text: bool) -> Vectorised:
    def call(times: Column) -> Column | None:
        if not isinstance(times, Numbers):
            return None
        numbers = times.array.astype(np.int64) // unit_ns
        return Texts(pa.array(numbers).cast(pa.string())) if as_text else Numbers(numbers, "int64")

    return call


# -- printing --------------------------------------------------------------------------------------------------------


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


_UPPER, _LOWER = _text_change(pc.ascii_upper), _text_change(pc.ascii_lower)
_TRIM = _text_change(lambda array: pc.ascii_trim(array, characters=_ASCII_SPACES))
_BOTH, _LEFT, _RIGHT = map(_trimmed_with, (pc.utf8_trim, pc.utf8_ltrim, pc.utf8_rtrim))

#: Functions that may take long for each text: their columns are cut, so that the query can be stopped in between.
SLICED = frozenset({"regexReplaceAll", "regexReplaceAllLiteral", "count"})

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
    "regexReplaceAll": _replace_pattern,
    "regexReplaceAllLiteral": _replace_pattern_literal,
    "count": _count,
    "eq": _compare(pc.equal, np.equal),
    "ne": _compare(pc.not_equal, np.not_equal),
    "lt": _compare(pc.less, np.less),
    "le": _compare(pc.less_equal, np.less_equal),
    # By negation, as Go does: NaN is greater than everything.
    "gt": _compare(pc.greater, lambda a, b: ~np.less_equal(a, b)),
    "ge": _compare(pc.greater_equal, lambda a, b: ~np.less(a, b)),
    "not": _not,
    "add": _arithmetic(np.add),
    "sub": _arithmetic(np.subtract),
    "mul": _arithmetic(np.multiply),
    "max": _arithmetic(np.maximum),
    "min": _arithmetic(np.minimum),
    "int": _to_int,
    "date": _date,
    "unixEpoch": _epoch(_SECOND_NS, as_text=True),
    "unixEpochMillis": _epoch(1_000_000, as_text=True),
    "unixEpochNanos": _epoch(1, as_text=True),
    "printf": _printf,
    "print": _print,
    ".Format": _method_format,
    ".Unix": _epoch(_SECOND_NS, as_text=False),
    ".UnixMilli": _epoch(1_000_000, as_text=False),
    ".UnixNano": _epoch(1, as_text=False),
}
