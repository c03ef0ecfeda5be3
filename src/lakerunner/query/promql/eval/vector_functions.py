"""Functions of one instant vector that act on every value by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from lakerunner.query.promql.eval.block import Block
from lakerunner.query.promql.histogram import Floats, Ints
from lakerunner.query.promql.histogram_grid import HistogramGrid
from lakerunner.query.promql.histogram_quantile import variance

_DAY_S = 86_400


def _sign(values: Floats) -> Floats:
    return np.where(values > 0, 1.0, np.where(values < 0, -1.0, values))


FLOAT_FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "deg": lambda values: values * 180 / math.pi,
    "exp": np.exp,
    "floor": np.floor,
    "ln": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "rad": lambda values: values * math.pi / 180,
    "sgn": _sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


def apply_float(name: str, block: Block) -> Block:
    with np.errstate(all="ignore"):
        return block.mapped(FLOAT_FUNCTIONS[name](block.values))


def round_to(block: Block, nearest: Floats) -> Block:
    """Ties go up. Multiplying by the inverse loses less than dividing."""
    with np.errstate(all="ignore"):
        inverse = 1.0 / nearest
        return block.mapped(np.floor(block.values * inverse + 0.5) / inverse)


def least(left: Floats, right: Floats) -> Floats:
    """The smaller one. Minus infinity wins even against NaN, as in Go."""
    return np.where((left == -np.inf) | (right == -np.inf), -np.inf, np.minimum(left, right))


def largest(left: Floats, right: Floats) -> Floats:
    """The larger one. Infinity wins even against NaN, as in Go."""
    return np.where((left == np.inf) | (right == np.inf), np.inf, np.maximum(left, right))


def clamp(block: Block, low: Floats, high: Floats) -> Block:
    """Steps where the bounds cross have no result."""
    values = largest(low, least(high, block.values))
    return block.masked(np.broadcast_to(~(high < low), block.shape)).floats().mapped(values)


def _civil(seconds: Floats) -> tuple[Ints, Ints, Ints, Ints]:
    """Days since the epoch, year, month and day of UTC times."""
    # Values beyond what a date can be are clipped rather than wrapped around.
    whole = np.clip(np.nan_to_num(seconds, nan=0.0), -6e13, 6e13).astype(np.int64)
    days = np.floor_divide(whole, _DAY_S)
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    years = dates.astype("datetime64[Y]")
    year = years.astype(np.int64) + 1970
    month = (months - years).astype(np.int64) + 1
    day = (dates - months).astype(np.int64) + 1
    return days, year, month, day


def _days_in_month(seconds: Floats) -> Floats:
    days, _, _, _ = _civil(seconds)
    month = days.astype("datetime64[D]").astype("datetime64[M]")
    length: Floats = ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(np.float64)
    return length


def _day_of_year(seconds: Floats) -> Floats:
    days, _, _, _ = _civil(seconds)
    year = days.astype("datetime64[D]").astype("datetime64[Y]").astype("datetime64[D]")
    day: Floats = (days.astype("datetime64[D]") - year).astype(np.float64)
    return day + 1


DATE_FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "day_of_month": lambda seconds: _civil(seconds)[3].astype(np.float64),
    "day_of_week": lambda seconds: ((_civil(seconds)[0] + 4) % 7).astype(np.float64),
    "day_of_year": _day_of_year,
    "days_in_month": _days_in_month,
    "hour": lambda seconds: np.floor_divide(np.trunc(seconds) % _DAY_S, 3_600),
    "minute": lambda seconds: np.floor_divide(np.trunc(seconds) % 3_600, 60),
    "month": lambda seconds: _civil(seconds)[2].astype(np.float64),
    "year": lambda seconds: _civil(seconds)[1].astype(np.float64),
}


def _variances(hists: HistogramGrid) -> Floats:
    return np.array([variance(hists.column.at(row)) for row in hists.row.tolist()], dtype=np.float64)


#: Of histograms in a row, the number of each.
HISTOGRAM_VALUES: dict[str, Callable[[HistogramGrid], Floats]] = {
    "histogram_avg": lambda hists: hists.column.sum[hists.row] / hists.column.count[hists.row],
    "histogram_count": lambda hists: hists.column.count[hists.row],
    # The root of a negative number is NaN.
    "histogram_stddev": lambda hists: np.sqrt(_variances(hists)),
    "histogram_stdvar": _variances,
    "histogram_sum": lambda hists: hists.column.sum[hists.row],
}


def apply_histogram(block: Block, name: str) -> Block:
    """A number for every histogram; floats have none."""
    values, valid = np.zeros(block.shape), np.zeros(block.shape, dtype=bool)
    if block.hists is not None and block.hmask is not None:
        valid = block.hmask
        values[valid] = HISTOGRAM_VALUES[name](block.hists[valid])
    return Block(block.labels, values, valid, np.ones(len(block.labels), dtype=bool)).pruned()
