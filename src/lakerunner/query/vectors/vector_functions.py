"""Functions of an instant vector that transform every value independently."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from lakerunner.model import distinct
from lakerunner.query.series.arrays import offsets_of
from lakerunner.query.series.block import Block, EvaluationError
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.histograms.histogram import Floats, Histogram, Ints

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
    """Round to multiples of `nearest`; ties go up. Multiplying by the inverse is more precise than dividing."""
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
    """Limit values to the range `low` to `high`. Steps with `low` above `high` have no result."""
    values = largest(low, least(high, block.values))
    return block.masked(np.broadcast_to(~(high < low), block.shape)).floats().mapped(values)


def _clock(seconds: Floats) -> tuple[Ints, Ints]:
    """Days since the epoch, and the second of the day, of UTC times.

    Values that do not fit into int64 (NaN, infinities) become 2**63 seconds, as in Prometheus on amd64.
    """
    fits = np.abs(seconds) < 2.0**63
    whole_seconds = np.where(fits, seconds, 0.0).astype(np.int64)
    end_day, end_second = divmod(1 << 63, _DAY_S)
    return np.where(fits, whole_seconds // _DAY_S, end_day), np.where(fits, whole_seconds % _DAY_S, end_second)


def _date(seconds: Floats) -> np.ndarray:
    return _clock(seconds)[0].astype("datetime64[D]")


def _of_year(seconds: Floats) -> Floats:
    return _date(seconds).astype("datetime64[Y]").astype(np.float64) + 1970


def _of_month(seconds: Floats) -> Floats:
    months = _date(seconds).astype("datetime64[M]")
    number: Floats = (months - months.astype("datetime64[Y]")).astype(np.float64)
    return number + 1


def _since(seconds: Floats, unit: str) -> Floats:
    """The number of the day within its month or year, from one."""
    dates = _date(seconds)
    number: Floats = (dates - dates.astype(f"datetime64[{unit}]")).astype(np.float64)
    return number + 1


def _days_in_month(seconds: Floats) -> Floats:
    month = _date(seconds).astype("datetime64[M]")
    length: Floats = ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(np.float64)
    return length


DATE_FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "day_of_month": lambda seconds: _since(seconds, "M"),
    "day_of_week": lambda seconds: ((_clock(seconds)[0] + 4) % 7).astype(np.float64),
    "day_of_year": lambda seconds: _since(seconds, "Y"),
    "days_in_month": _days_in_month,
    "hour": lambda seconds: (_clock(seconds)[1] // 3_600).astype(np.float64),
    "minute": lambda seconds: (_clock(seconds)[1] // 60 % 60).astype(np.float64),
    "month": _of_month,
    "year": _of_year,
}


def _distinct(hists: HistogramGrid) -> Floats:
    """How many different values the registers of a rule stand for."""
    column, rows = hists.column, hists.row
    if ((column.schema[rows] != distinct.SCHEMA) | (column.zero_threshold[rows] != distinct.ZERO_THRESHOLD)).any():
        raise EvaluationError(
            "cannot count different values: histogram_distinct reads series of rules that compute distinct(field)"
        )
    starts = column.pos_offsets[rows]
    sizes = column.pos_offsets[rows + 1] - starts
    owner = np.repeat(np.arange(len(rows)), sizes)
    at = np.arange(int(sizes.sum())) + np.repeat(starts - offsets_of(sizes)[:-1], sizes)
    is_set = column.pos_count[at] > 0
    return distinct.estimates(owner[is_set], column.pos_index[at[is_set]], len(rows))


def _variances(hists: HistogramGrid) -> Floats:
    return np.array([_variance(hists.column.at(row)) for row in hists.row.tolist()], dtype=np.float64)


def _variance(histogram: Histogram) -> float:
    """The variance, assuming that every observation lies in the middle of its bucket."""
    with np.errstate(all="ignore"):
        mean = float(np.float64(histogram.sum) / np.float64(histogram.count))
        lower, upper, count = histogram.all_buckets()
        filled = count != 0
        lower, upper, count = lower[filled], upper[filled], count[filled]
        if histogram.custom:
            middle = (lower + upper) / 2
        else:
            geometric = np.sqrt(upper * lower)
            middle = np.where((lower <= 0) & (upper >= 0), 0.0, np.where(upper < 0, -geometric, geometric))
        terms = count * (middle - mean) ** 2
        total = math.fsum(terms) if np.isfinite(terms).all() else float(terms.sum())
        return float(np.float64(total) / np.float64(histogram.count))


#: The number that each function computes from every histogram of a one-dimensional grid.
HISTOGRAM_VALUES: dict[str, Callable[[HistogramGrid], Floats]] = {
    "histogram_avg": lambda hists: hists.column.sum[hists.row] / hists.column.count[hists.row],
    "histogram_count": lambda hists: hists.column.count[hists.row],
    # Not one of Prometheus' functions.
    "histogram_distinct": _distinct,
    # The root of a negative number is NaN.
    "histogram_stddev": lambda hists: np.sqrt(_variances(hists)),
    "histogram_stdvar": _variances,
    "histogram_sum": lambda hists: hists.column.sum[hists.row],
}


def apply_histogram(block: Block, name: str) -> Block:
    """Replace every histogram by a number, and remove floats."""
    values, valid = np.zeros(block.shape), np.zeros(block.shape, dtype=bool)
    if block.hists is not None and block.hmask is not None:
        valid = block.hmask
        values[valid] = HISTOGRAM_VALUES[name](block.hists[valid])
    return Block(block.labels, values, valid, np.ones(len(block.labels), dtype=bool)).pruned()
