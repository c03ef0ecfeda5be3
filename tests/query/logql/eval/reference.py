"""Range aggregations, entry by entry: slow and obvious."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from lakerunner.query.logql import ast
from tests.query.logql.eval.memory_entries import Entry

Labels = tuple[tuple[str, str], ...]
Cells = dict[Labels, list[float | None]]


def range_aggregated(node: ast.RangeAggregate, entries: Sequence[Entry], steps_ns: Sequence[int]) -> Cells:
    found: Cells = defaultdict(lambda: [None] * len(steps_ns))
    log_range = node.range
    for step, now in enumerate(steps_ns):
        until = now - log_range.offset_ns
        windows: dict[Labels, list[tuple[float, int]]] = defaultdict(list)
        for entry in sorted(entries, key=lambda each: each.time_ns):
            if until - log_range.range_ns < entry.time_ns <= until:
                text = entry.labels.get(log_range.unwrap.label) if log_range.unwrap else "1"
                if text:
                    windows[_series(node, entry.labels)].append((float(text), len(entry.line.encode())))
        for labels, samples in windows.items():
            found[labels][step] = _FUNCTIONS[node.op](
                [value for value, _ in samples],
                sum(size for _, size in samples),
                log_range.range_ns / 1e9,
                node.param or 0.0,
            )
    return dict(found)


def _series(node: ast.RangeAggregate, labels: Mapping[str, str]) -> Labels:
    grouping, unwrap = node.grouping, node.range.unwrap
    if grouping is not None and not grouping.without:
        return tuple(sorted(pair for pair in labels.items() if pair[0] in grouping.labels))
    left_out = {*(grouping.labels if grouping else ()), unwrap.label if unwrap else ""}
    return tuple(sorted(pair for pair in labels.items() if pair[0] not in left_out))


def summed(cells: Cells, by: Sequence[str], steps: int) -> Cells:
    out: Cells = defaultdict(lambda: [None] * steps)
    for labels, values in cells.items():
        group = out[tuple(pair for pair in labels if pair[0] in by)]
        for step, value in enumerate(values):
            if value is not None:
                group[step] = value + (group[step] or 0.0)
    return dict(out)


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / len(values)


def _quantile(values: Sequence[float], q: float) -> float:
    ordered, rank = sorted(values), q * (len(values) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(values) - 1)
    return ordered[low] * (1 - (rank - low)) + ordered[high] * (rank - low)


_FUNCTIONS: Mapping[str, Callable[[list[float], int, float, float], float]] = {
    "count_over_time": lambda values, size, seconds, q: len(values),
    "bytes_over_time": lambda values, size, seconds, q: size,
    "bytes_rate": lambda values, size, seconds, q: size / seconds,
    "rate": lambda values, size, seconds, q: math.fsum(values) / seconds,
    "sum_over_time": lambda values, size, seconds, q: math.fsum(values),
    "avg_over_time": lambda values, size, seconds, q: math.fsum(values) / len(values),
    "min_over_time": lambda values, size, seconds, q: min(values),
    "max_over_time": lambda values, size, seconds, q: max(values),
    "first_over_time": lambda values, size, seconds, q: values[0],
    "last_over_time": lambda values, size, seconds, q: values[-1],
    "stdvar_over_time": lambda values, size, seconds, q: _variance(values),
    "stddev_over_time": lambda values, size, seconds, q: math.sqrt(_variance(values)),
    "quantile_over_time": lambda values, size, seconds, q: _quantile(values, q),
}
