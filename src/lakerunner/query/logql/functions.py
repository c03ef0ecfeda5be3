"""The aggregations of LogQL, and what each of them takes."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Unwrapping(enum.Enum):
    """Whether an aggregation is over the values of an unwrapped label."""

    NEVER = "never"
    ALWAYS = "always"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class RangeFunction:
    unwrap: Unwrapping
    #: Whether `by (…)` or `without (…)` may follow.
    grouping: bool = False
    #: Whether a number stands before the range.
    param: bool = False


RANGE_FUNCTIONS = {
    **dict.fromkeys(("count_over_time", "bytes_over_time", "bytes_rate"), RangeFunction(Unwrapping.NEVER)),
    **dict.fromkeys(("rate", "absent_over_time"), RangeFunction(Unwrapping.EITHER)),
    **dict.fromkeys(("sum_over_time", "rate_counter"), RangeFunction(Unwrapping.ALWAYS)),
    **dict.fromkeys(
        (
            "avg_over_time",
            "max_over_time",
            "min_over_time",
            "first_over_time",
            "last_over_time",
            "stddev_over_time",
            "stdvar_over_time",
        ),
        RangeFunction(Unwrapping.ALWAYS, grouping=True),
    ),
    "quantile_over_time": RangeFunction(Unwrapping.ALWAYS, grouping=True, param=True),
}

#: Those that keep k series, and take k before the vector.
LIMITING = frozenset({"topk", "bottomk", "approx_topk"})
SORTING = frozenset({"sort", "sort_desc"})
VECTOR_FUNCTIONS = frozenset({"sum", "avg", "max", "min", "count", "stddev", "stdvar", *LIMITING, *SORTING})

#: How `unwrap` reads a label that is no plain number.
CONVERSIONS = frozenset({"bytes", "duration", "duration_seconds"})
