"""Whether an answer is the recorded one. Each check returns None, or what differs in one line.

Entries of one instant have no order, floats are compared with a tolerance, and any 4xx is as good as another.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.query.logqltest.asking import Answer
from tests.query.logqltest.suite import Case

_TOLERANCE = 1e-9
#: Below this, two numbers differ by rounding alone.
_NOISE = 1e-12
_SHOWN = 300

Samples = Sequence[tuple[float, str]]


def query_difference(case: Case, answer: Answer, field: str = "expect") -> str | None:
    error = case.recorded.get("error")
    if error is not None:
        # Even where a real server fails with 500, refusing the query is right.
        if 400 <= answer.status < 500:
            return None
        got = f"status {answer.status}: {answer.text[:_SHOWN]}"
        return f"expected a refusal ({error['message'][:_SHOWN]}), got {got}"
    if answer.status != 200:
        return f"expected an answer, got status {answer.status}: {answer.text[:_SHOWN].strip()}"
    want, got = case.recorded[field], answer.document["data"]
    tolerance = case.recorded.get("tolerance", _TOLERANCE)
    if field == "expect_categorized" and want.get("encodingFlags") != got.get("encodingFlags"):
        return f"expected encodingFlags {want.get('encodingFlags')}, got {got.get('encodingFlags')}"
    return data_difference(case, want, got, tolerance)


def data_difference(case: Case, want: Mapping[str, Any], got: Mapping[str, Any], tolerance: float) -> str | None:
    kind = want["resultType"]
    if kind != got.get("resultType"):
        return f"expected resultType {kind}, got {got.get('resultType')}"
    if kind == "scalar":
        expected, value = want["result"][1], got["result"][1]
        # The recorded time of a scalar is not a time.
        return None if same_number(expected, value, tolerance) else f"expected {expected}, got {value}"
    results = want["result"] or [], got["result"] or []
    if kind == "streams":
        return _streams_difference(case, *results)
    return _series_difference(*results, tolerance=tolerance) or (
        _order_difference(*results, tolerance=tolerance) if case.recorded.get("ordered") else None
    )


def same_number(one: str | float, other: str | float, tolerance: float = _TOLERANCE) -> bool:
    a, b = float(one), float(other)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=_NOISE)


def _labels(item: Mapping[str, Any]) -> str:
    return _text(item["stream"] if "stream" in item else item["metric"])


def _text(document: object) -> str:
    return json.dumps(document, sort_keys=True, ensure_ascii=False)


# -- log entries -----------------------------------------------------------------------------------------------------


def _streams_difference(case: Case, want: Sequence[Any], got: Sequence[Any]) -> str | None:
    if case.recorded.get("tie_at_limit"):
        # The limit cut through the entries of one instant: any of them may have been kept, but as many.
        times = [int(value[0]) for stream in want for value in stream["values"]]
        edge = str(max(times) if case.params.get("direction") == "forward" else min(times))
        counts = [sum(value[0] == edge for stream in side for value in stream["values"]) for side in (want, got)]
        if counts[0] != counts[1]:
            return f"expected {counts[0]} entries at the instant of the limit, got {counts[1]}"
        want, got = _without(edge, want), _without(edge, got)
    expected, received = ({_labels(stream): stream["values"] for stream in side} for side in (want, got))
    if missing := _missing(expected, received):
        return missing
    for labels, values in expected.items():
        times, found = ([value[0] for value in each] for each in (values, received[labels]))
        if times != found:
            return f"expected {labels} at {times[:5]}, got {found[:5]} ({len(times)} and {len(found)} entries)"
        wanted, entries = _by_time(values), _by_time(received[labels])
        for time, texts in wanted.items():
            if texts != entries[time]:
                return f"expected {labels} at {time}: {list(texts - entries[time])[:2]}, got {list(entries[time])[:2]}"
    return None


def _without(time: str, streams: Sequence[Any]) -> list[Any]:
    left = [{**stream, "values": [value for value in stream["values"] if value[0] != time]} for stream in streams]
    return [stream for stream in left if stream["values"]]


def _by_time(values: Sequence[Any]) -> dict[str, Counter[str]]:
    entries: dict[str, Counter[str]] = defaultdict(Counter)
    for time, *entry in values:
        entries[time][_text(entry)] += 1
    return entries


def _missing(expected: Mapping[str, object], received: Mapping[str, object]) -> str | None:
    """Label sets that differ. Of two that are nearly the same, only what differs is shown."""
    if expected.keys() == received.keys():
        return None
    missing, unexpected = sorted(expected.keys() - received.keys()), sorted(received.keys() - expected.keys())
    counts = f"{len(missing)} of {len(expected)} label sets are missing, {len(unexpected)} are unexpected"
    if not missing or not unexpected:
        return f"{counts}: {(missing or unexpected)[:2]}"
    want = json.loads(missing[0]).items()
    nearest = max((json.loads(text).items() for text in unexpected), key=lambda got: len(want & got))
    return f"{counts}: expected {dict(want - nearest)}, got {dict(nearest - want)}"


# -- samples ---------------------------------------------------------------------------------------------------------


def _series_difference(want: Sequence[Any], got: Sequence[Any], *, tolerance: float) -> str | None:
    expected, received = _by_labels(want), _by_labels(got)
    if missing := _missing(expected, received):
        return missing
    for labels, group in expected.items():
        if len(group) != len(received[labels]):
            return f"expected {len(group)} series {labels}, got {len(received[labels])}"
        for samples, found in zip(group, received[labels], strict=True):
            if difference := _samples_difference(samples, found, tolerance):
                return f"{labels}: {difference}"
    return None


def _by_labels(series: Sequence[Any]) -> dict[str, list[Samples]]:
    """Samples by labels. Label sets may repeat, since `label_replace` can make them equal."""
    groups: dict[str, list[Samples]] = defaultdict(list)
    for one in series:
        samples = one["values"] if "values" in one else [one["value"]]
        groups[_labels(one)].append([(float(time), value) for time, value in samples])
    for group in groups.values():
        group.sort(key=lambda samples: [(time, float(value)) for time, value in samples])
    return groups


def _samples_difference(want: Samples, got: Samples, tolerance: float) -> str | None:
    times, found = [time for time, _ in want], [time for time, _ in got]
    if times != found:
        return f"expected {len(times)} samples at {times[:5]}, got {len(found)} at {found[:5]}"
    for (time, expected), (_, value) in zip(want, got, strict=True):
        if not same_number(expected, value, tolerance):
            return f"expected {expected} at {time:.3f}, got {value}"
    return None


def _order_difference(want: Sequence[Any], got: Sequence[Any], *, tolerance: float) -> str | None:
    values, found = ([one["value"][1] for one in side] for side in (want, got))
    if all(same_number(one, other, tolerance) for one, other in zip(values, found, strict=True)):
        return None
    return f"expected the order {values[:10]}, got {found[:10]}"
