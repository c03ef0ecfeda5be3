"""Series as scripts write them, and what tests compare them with."""

from __future__ import annotations

import math
import re

import numpy as np

from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.syntax.durations import parse_duration_ms
from lakerunner.rules.unit_tests.notation import Point, parse_histogram, parse_metric, parse_series

__all__ = ["Point", "almost_equal", "parse_histogram", "parse_metric", "parse_series", "parse_starts", "same_histogram"]

_START_ITEM = re.compile(r"([+-]?)((?:\d+(?:ms|[ywdhms]))+|\d+)(?:([+-])((?:\d+(?:ms|[ywdhms]))+))?(?:x(\d+))?$")


def parse_starts(text: str) -> list[int | None]:
    """Start timestamps, each relative to its sample's time, in milliseconds."""
    out: list[int | None] = []
    for item in text.split():
        if item == "_" or item.startswith("_x"):
            out += [None] * int(item[2:] or 1)
            continue
        if item[0] == "*":
            last = next((value for value in reversed(out) if value is not None), 0)
            out += [last] * (int(item[2:] or 0) + 1)
            continue
        found = _START_ITEM.match(item)
        assert found, f"not a start timestamp: {item!r}"
        value = (-1 if found[1] == "-" else 1) * parse_duration_ms(found[2])
        step = parse_duration_ms(found[4] or "0s") * (-1 if found[3] == "-" else 1)
        out += [value + i * step for i in range(int(found[5] or 0) + 1)]
    return out


def almost_equal(expected: float, got: float, tolerance: float = 1e-6) -> bool:
    if math.isnan(expected) or math.isnan(got):
        return math.isnan(expected) and math.isnan(got)
    if expected == got:
        return True
    smallest = 2.2250738585072014e-308
    difference, total = abs(expected - got), abs(expected) + abs(got)
    if expected == 0 or got == 0 or total < smallest:
        return difference < tolerance * smallest
    return difference / min(total, 1.7976931348623157e308) < tolerance


def same_histogram(expected: Histogram, got: Histogram, with_hint: bool) -> bool:
    expected, got = expected.compact(), got.compact()

    def close(a: np.ndarray, b: np.ndarray) -> bool:
        return len(a) == len(b) and all(almost_equal(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True))

    return (
        expected.schema == got.schema
        and expected.bounds == got.bounds
        and expected.zero_threshold == got.zero_threshold
        and almost_equal(expected.count, got.count)
        and almost_equal(expected.sum, got.sum)
        and almost_equal(expected.zero_count, got.zero_count)
        and np.array_equal(expected.pos_index, got.pos_index)
        and np.array_equal(expected.neg_index, got.neg_index)
        and close(expected.pos_count, got.pos_count)
        and close(expected.neg_count, got.neg_count)
        and (not with_hint or expected.hint == got.hint)
    )
