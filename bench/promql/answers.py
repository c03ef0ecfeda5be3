"""Compare two answers: equal series, times and types, and values that differ at most in the last bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson

#: Allows for compensated sums of thousands of rates in different orders.
TOLERANCE = 1e-12

Labels = tuple[tuple[str, str], ...]


def difference(ours: bytes, theirs: bytes, *, any_of_equals: bool = False) -> str | None:
    """Describe the first difference; None if there is none.

    With `any_of_equals`, either of two series with equal values may be returned, so only the values per step count.
    """
    mine, other = orjson.loads(ours), orjson.loads(theirs)
    for who, answer in (("ours", mine), ("theirs", other)):
        if answer.get("status") != "success":
            return f"{who} is an error: {answer.get('error')}"
        if answer.get("warnings"):
            return f"{who} warns: {answer['warnings']}"
    if isinstance(mine["data"], list):
        return _list_difference(mine["data"], other["data"])
    if mine["data"]["resultType"] != other["data"]["resultType"]:
        return f"we give a {mine['data']['resultType']}, they a {other['data']['resultType']}"
    mine_by, other_by = _by_labels(mine["data"]["result"]), _by_labels(other["data"]["result"])
    if any_of_equals:
        mine_by, other_by = _by_step(mine_by), _by_step(other_by)
    return _series_difference(mine_by, other_by)


def _list_difference(mine: list[Any], other: list[Any]) -> str | None:
    """Compare lists. Names are sorted in every answer; label sets have no defined order."""
    if mine and isinstance(mine[0], dict):
        mine, other = sorted(map(_labels, mine)), sorted(map(_labels, other))
    if not mine:
        return "nothing was found"
    return None if mine == other else f"we list {len(mine)} ({mine[:3]} …), they {len(other)} ({other[:3]} …)"


def _series_difference(mine: dict[Labels, np.ndarray], other: dict[Labels, np.ndarray]) -> str | None:
    if not mine:
        return "nothing was found"
    for labels in mine.keys() ^ other.keys():
        only = "we" if labels in mine else "they"
        return f"only {only} have {dict(labels)} (we have {len(mine)} series, they {len(other)})"
    for labels, points in mine.items():
        found = _points_difference(points, other[labels])
        if found:
            return f"{dict(labels)}: {found}"
    return None


def _points_difference(mine: np.ndarray, other: np.ndarray) -> str | None:
    if mine.shape != other.shape or not np.array_equal(mine[0], other[0]):
        return f"we have {mine.shape[1]} points, they {other.shape[1]}, or at other times"
    equal = (mine[1] == other[1]) | (np.isnan(mine[1]) & np.isnan(other[1]))
    with np.errstate(invalid="ignore"):
        equal |= np.abs(mine[1] - other[1]) <= TOLERANCE * np.maximum(np.abs(mine[1]), np.abs(other[1]))
    if equal.all():
        return None
    at = int(np.argmin(equal))
    return f"at {mine[0, at]} we have {mine[1, at]!r}, they {other[1, at]!r}"


def _by_labels(result: Iterable[dict[str, Any]]) -> dict[Labels, np.ndarray]:
    """Return times and values of each series. No case returns histograms."""
    return {
        _labels(series["metric"]): np.array(series.get("values") or [series["value"]], np.float64).T
        for series in result
    }


def _by_step(series: dict[Labels, np.ndarray]) -> dict[Labels, np.ndarray]:
    """Merge all points into one series without labels, ordered by time and value."""
    if not series:
        return {}
    points = np.concatenate(list(series.values()), axis=1)
    return {(): points[:, np.lexsort((points[1], points[0]))]}


def _labels(metric: dict[str, str]) -> Labels:
    return tuple(sorted(metric.items()))
