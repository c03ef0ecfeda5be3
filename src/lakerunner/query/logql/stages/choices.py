"""`drop` and `keep`: which labels an entry loses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR, ERROR_DETAILS, Check, Entries, Mask, encoded
from lakerunner.query.series.matchers import Matcher, accepting

#: Labels that `keep` never removes.
_SPECIAL = (ERROR, ERROR_DETAILS)


def dropped(entries: Entries, stage: ast.Drop, check: Check) -> Entries:
    for choice in stage.choices:
        where = None if choice.matcher is None else _matched(entries, choice.matcher, check)
        entries = entries.without_label(choice.label, where)
    return entries


def kept(entries: Entries, stage: ast.Keep, check: Check) -> Entries:
    for name in entries.names():
        if name in _SPECIAL:
            continue
        chosen = [choice for choice in stage.choices if choice.label == name]
        if any(choice.matcher is None for choice in chosen):
            continue
        keep = np.zeros(len(entries), np.bool_)
        for choice in chosen:
            assert choice.matcher is not None
            keep |= _matched(entries, choice.matcher, check)
        entries = entries.without_label(name, ~keep if chosen else None)
    return entries


def _matched(entries: Entries, matcher: Matcher, check: Check) -> Mask:
    """The entries whose label the matcher accepts. A missing label has the empty value."""
    accepts = accepting([matcher], check)
    values = entries.label(matcher.name)
    if values is None:
        return np.full(len(entries), accepts(""))
    distinct = encoded(values)
    accepted = np.array([*map(accepts, distinct.dictionary.to_pylist()), accepts("")], np.bool_)
    indices = pc.fill_null(distinct.indices, pa.scalar(len(accepted) - 1, distinct.indices.type))
    found: Mask = accepted[indices.to_numpy(zero_copy_only=False)]
    return found
