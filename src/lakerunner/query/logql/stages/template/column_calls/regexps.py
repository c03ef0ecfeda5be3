"""Regular expressions, by Arrow's kernels where they find what Go finds."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.stages.template.column_calls.signature import Vectorised, on_values
from lakerunner.query.logql.stages.template.columns import Column, Constant, Numbers, Texts, plain_texts, text_lengths
from lakerunner.query.logql.stages.template.functions.regexps import arrow_template, steps
from lakerunner.query.series.patterns import MAX_STEPS

#: Assertions may match between characters, where replacing differs.
_MAY_BE_EMPTY = re.compile(r"\\[bBAz]|\^|\$|\(\?m")


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
    return on_values(texts, lambda array: pc.replace_substring_regex(array, pattern, replacement))


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


VECTORISED: dict[str, Vectorised] = {
    "regexReplaceAll": _replace_pattern,
    "regexReplaceAllLiteral": _replace_pattern_literal,
    "count": _count,
}
