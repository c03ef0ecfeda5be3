"""A parser with the label filters behind it. Where they keep few entries, only those are parsed in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR, ERROR_DETAILS, Check, Entries, Ints, Stage
from lakerunner.query.logql.needed import condition_names
from lakerunner.query.logql.stages.fields import EXTRACTED, Wanted
from lakerunner.query.logql.stages.label_filters import filtered, with_verdict

#: Entries that are tried first. For fewer than a few times as many, nothing is gained.
_SAMPLE, _FEW = 1_024, 8_192
#: Of the entries, at most this share may be kept: parsing them twice must cost less than making labels of all.
_MOST = 0.3


def parse_and_filter(
    parser: Callable[[Wanted], Stage],
    conditions: Sequence[ast.Condition],
    wanted: Wanted,
    assigned: frozenset[str] = frozenset(),
) -> Stage:
    """`parser` compiles the stage for the given labels. `assigned` are the labels that it or earlier stages name."""
    whole = parser(wanted)
    names = frozenset(name for condition in conditions for name in condition_names(condition))
    # With their label, errors behind the last of the names are found too.
    some = parser(names | {ERROR})
    read = names | {name.removesuffix(EXTRACTED) for name in names} | {ERROR, ERROR_DETAILS}

    def kept_rows(entries: Entries, check: Check) -> Ints:
        """The entries that the filters keep, found with the labels that they read and no others."""
        rows: Ints = np.arange(len(entries))
        entries = some(entries.only(read), check)
        for condition in conditions:
            entries, keep = with_verdict(entries, condition, check, assigned)
            rows = rows[keep]
        return rows

    def run(entries: Entries, check: Check) -> Entries:
        if wanted is None and len(entries) > _FEW:
            sample = entries.taken(np.arange(_SAMPLE))
            if len(kept_rows(sample, check)) <= _MOST * _SAMPLE:
                entries = entries.taken(kept_rows(entries, check))
        entries = whole(entries, check)
        for condition in conditions:
            check()
            entries = filtered(entries, condition, check, assigned)
        return entries

    return run
