"""Compare the answers of two servers: entries as a set, values with a tolerance for the order of sums."""

from __future__ import annotations

import json
import math
from typing import Any

_TOLERANCE = 1e-9


def difference(ours: bytes, theirs: bytes, *, any_of_equals: bool = False) -> str:
    """Say how two answers of Loki's API differ; empty if they are the same."""
    mine, other = json.loads(ours)["data"], json.loads(theirs)["data"]
    if mine["resultType"] != other["resultType"]:
        return f"{mine['resultType']} instead of {other['resultType']}"
    if mine["resultType"] == "streams":
        return _entries_differ(mine["result"], other["result"])
    return _series_differ(mine["result"], other["result"], any_of_equals=any_of_equals)


def _entries_differ(ours: list[Any], theirs: list[Any]) -> str:
    def entries(streams: list[Any]) -> list[tuple[str, str, str]]:
        return sorted(
            (time, line, json.dumps(stream["stream"], sort_keys=True))
            for stream in streams
            for time, line in stream["values"]
        )

    mine, other = entries(ours), entries(theirs)
    if mine == other:
        return ""
    missing, extra = set(other) - set(mine), set(mine) - set(other)
    example = next(iter(missing or extra), None)
    return f"{len(mine)} entries instead of {len(other)}, {len(missing)} missing, {len(extra)} extra, as {example}"


def _series_differ(ours: list[Any], theirs: list[Any], *, any_of_equals: bool) -> str:
    def series(result: list[Any]) -> dict[str, list[tuple[float, float]]]:
        return {
            json.dumps(each["metric"], sort_keys=True): [
                (float(time), float(value)) for time, value in each.get("values", [each.get("value")])
            ]
            for each in result
        }

    mine, other = series(ours), series(theirs)
    if any_of_equals:
        mine, other = ({str(place): one for place, one in enumerate(sorted(each.values()))} for each in (mine, other))
    if mine.keys() != other.keys():
        return f"{len(mine)} series instead of {len(other)}, as {next(iter(mine.keys() ^ other.keys()))}"
    for labels, points in mine.items():
        expected = other[labels]
        if len(points) != len(expected) or not all(map(_same, points, expected)):
            return f"{labels}: {points[:3]} instead of {expected[:3]}"
    return ""


def _same(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] == other[0] and math.isclose(one[1], other[1], rel_tol=_TOLERANCE)
