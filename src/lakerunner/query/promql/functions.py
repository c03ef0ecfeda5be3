"""The functions and aggregations of PromQL: their arguments and results."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.query.promql.ast import ValueType

_S, _T, _V, _M = ValueType.SCALAR, ValueType.STRING, ValueType.VECTOR, ValueType.MATRIX


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    args: tuple[ValueType, ...]
    returns: ValueType = _V
    #: How many of the last arguments may be missing.
    optional: int = 0
    #: The last argument may be repeated any number of times.
    repeats: bool = False


def _all(*functions: Function) -> dict[str, Function]:
    return {function.name: function for function in functions}


def _each(names: str, args: tuple[ValueType, ...], optional: int = 0) -> tuple[Function, ...]:
    return tuple(Function(name, args, optional=optional) for name in names.split())


FUNCTIONS: dict[str, Function] = _all(
    *_each(
        "abs absent acos acosh asin asinh atan atanh ceil cos cosh deg exp floor ln log10 log2 rad sgn sin sinh "
        "sort sort_desc sqrt tan tanh timestamp start_timestamp "
        "histogram_avg histogram_count histogram_distinct histogram_stddev histogram_stdvar histogram_sum",
        (_V,),
    ),
    *_each(
        "absent_over_time avg_over_time changes count_over_time delta deriv first_over_time idelta increase irate "
        "last_over_time mad_over_time max_over_time min_over_time present_over_time rate resets stddev_over_time "
        "stdvar_over_time sum_over_time ts_of_first_over_time ts_of_last_over_time ts_of_max_over_time "
        "ts_of_min_over_time",
        (_M,),
    ),
    *_each("day_of_month day_of_week day_of_year days_in_month hour minute month year", (_V,), optional=1),
    Function("clamp", (_V, _S, _S)),
    Function("clamp_max", (_V, _S)),
    Function("clamp_min", (_V, _S)),
    Function("double_exponential_smoothing", (_M, _S, _S)),
    Function("end", (), _S),
    Function("histogram_fraction", (_S, _S, _V)),
    Function("histogram_quantile", (_S, _V)),
    # From one to ten quantiles.
    Function("histogram_quantiles", (_V, _T, *[_S] * 10), optional=9),
    Function("info", (_V, _V), optional=1),
    Function("label_join", (_V, _T, _T, _T), optional=1, repeats=True),
    Function("label_replace", (_V, _T, _T, _T, _T)),
    Function("max_of", (_S, _S), _S),
    Function("min_of", (_S, _S), _S),
    Function("pi", (), _S),
    Function("predict_linear", (_M, _S)),
    Function("quantile_over_time", (_S, _M)),
    Function("range", (), _S),
    Function("round", (_V, _S), optional=1),
    Function("scalar", (_V,), _S),
    Function("sort_by_label", (_V, _T), optional=1, repeats=True),
    Function("sort_by_label_desc", (_V, _T), optional=1, repeats=True),
    Function("start", (), _S),
    Function("step", (), _S),
    Function("time", (), _S),
    Function("vector", (_S,)),
)

AGGREGATIONS = frozenset(
    [
        "sum",
        "avg",
        "min",
        "max",
        "count",
        "group",
        "stddev",
        "stdvar",
        "topk",
        "bottomk",
        "quantile",
        "count_values",
        "limitk",
        "limit_ratio",
    ]
)
#: Aggregations that take a parameter before the vector.
PARAMETRIC = frozenset(["topk", "bottomk", "quantile", "count_values", "limitk", "limit_ratio"])
#: Functions that accept anchored or smoothed selectors, which add samples from outside the window.
ANCHORED_SAFE = ("changes", "delta", "increase", "rate", "resets")
SMOOTHED_SAFE = ("delta", "increase", "rate")
