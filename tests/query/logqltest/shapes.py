"""Whether the answer of an endpoint other than a query is the recorded one, or has the same shape.

A shape leaves out numbers, which depend on how a server stores chunks and on its sketches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.query.logqltest.asking import Answer
from tests.query.logqltest.compare import data_difference
from tests.query.logqltest.suite import Case

_SHOWN = 300
_TOLERANCE = 1e-9


def endpoint_difference(case: Case, answer: Answer) -> str | None:
    status = case.recorded["status"]
    if status >= 400:
        if 400 <= answer.status < 500:
            return None
        return f"expected status {status}, got {answer.status}: {answer.text[:_SHOWN]}"
    if answer.status != status:
        return f"expected status {status}, got {answer.status}: {answer.text[:_SHOWN]}"
    want, got = case.recorded["answer"], answer.document
    if case.recorded["compare"] == "shape":
        return _shape_difference(want, got, "answer")
    if isinstance(want, dict) and isinstance(want.get("data"), dict) and "resultType" in want["data"]:
        return data_difference(case, want["data"], got["data"], _TOLERANCE)
    if _ordered(want) == _ordered(got):
        return None
    return f"expected {json.dumps(want)[:_SHOWN]}, got {json.dumps(got)[:_SHOWN]}"


def _ordered(document: Any) -> Any:
    """The document with series, which have no order, in that of their text."""
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        return {**document, "data": sorted(json.dumps(each, sort_keys=True) for each in document["data"])}
    return document


def _shape_difference(want: Any, got: Any, where: str) -> str | None:
    if isinstance(want, dict):
        if not isinstance(got, dict) or want.keys() != got.keys():
            names = sorted(got) if isinstance(got, dict) else type(got).__name__
            return f"{where}: expected members {sorted(want)}, got {names}"
        return next(filter(None, (_shape_difference(want[name], got[name], f"{where}.{name}") for name in want)), None)
    if isinstance(want, list):
        return _list_difference(want, got, where)
    if _is_number(want):
        return None if _is_number(got) else f"{where}: expected a number, got {got!r}"
    return None if want == got else f"{where}: expected {want!r}, got {got!r}"


def _list_difference(want: list[Any], got: Any, where: str) -> str | None:
    if not isinstance(got, list):
        return f"{where}: expected a list, got {got!r}"
    if all(isinstance(item, str) for item in (*want, *got)):
        want, got = sorted(want), sorted(got)
    expected, received = _keyed(want), _keyed(got)
    if expected is None or received is None:
        if want and got and all(_is_sample(item) for item in (*want, *got)):
            # A real server spreads the bytes of a chunk over all the time it covers.
            return None
        if len(want) != len(got):
            return f"{where}: expected {len(want)} elements, got {len(got)}"
        pairs = zip(want, got, strict=True)
        return next(filter(None, (_shape_difference(*pair, where) for pair in pairs)), None)
    if expected.keys() != received.keys():
        missing, unexpected = sorted(expected.keys() - received.keys()), sorted(received.keys() - expected.keys())
        return f"{where}: {missing[:8]} are missing, {unexpected[:8]} are unexpected"
    differences = (_shape_difference(expected[key], received[key], f"{where}[{key}]") for key in expected)
    return next(filter(None, differences), None)


def _keyed(items: list[Any]) -> Mapping[str, Any] | None:
    """The items by their labels or name; None where they have neither."""
    if not all(isinstance(item, dict) and ("metric" in item or "label" in item) for item in items):
        return None
    return {json.dumps(item["metric"], sort_keys=True) if "metric" in item else item["label"]: item for item in items}


def _is_sample(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and all(map(_is_number, item))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True
