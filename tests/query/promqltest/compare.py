"""Whether a result is the expected one; if not, why."""

from __future__ import annotations

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.results import MatrixResult, QueryResult, ScalarResult, StringResult, Value, VectorResult
from tests.query.promqltest.script import Eval, Expectation
from tests.query.promqltest.series import Point, almost_equal, same_histogram


class Mismatch(AssertionError):
    """The result is not what the script expects."""


def check_annotations(command: Eval, result: QueryResult) -> None:
    _check_messages("warn", command.warn, result.warnings)
    _check_messages("info", command.info, result.infos)
    if command.no_warn and result.warnings:
        raise Mismatch(f"expected no warnings, got {result.warnings}")
    if command.no_info and result.infos:
        raise Mismatch(f"expected no infos, got {result.infos}")


def _check_messages(kind: str, expected: list[Expectation], got: list[str]) -> None:
    if not expected:
        return
    for expectation in expected:
        if not any(expectation.accepts(message) for message in got):
            raise Mismatch(f"expected {kind} {expectation}, got {got}")
    for message in got:
        if not any(expectation.accepts(message) for expectation in expected):
            raise Mismatch(f"unexpected {kind}: {message}")


def check_value(command: Eval, value: Value) -> None:
    if isinstance(value, StringResult):
        if command.string != value.value:
            raise Mismatch(f"expected string {command.string!r}, got {value.value!r}")
    elif isinstance(value, ScalarResult):
        if command.scalar is None or not almost_equal(command.scalar, value.value):
            raise Mismatch(f"expected {_wanted(command)}, got scalar {value.value!r}")
    elif isinstance(value, VectorResult):
        _check_vector(command, value)
    else:
        _check_matrix(command, value)


def _wanted(command: Eval) -> str:
    if command.scalar is not None:
        return f"scalar {command.scalar}"
    return "; ".join(f"{labels} {[_shown(point.value) for point in points]}" for labels, points in command.series)


def _shown(value: float | Histogram | None) -> str:
    return repr(value) if not isinstance(value, Histogram) else f"{value} hint={value.hint.name} schema={value.schema}"


def _matches(point: Point, value: float, histogram: Histogram | None) -> bool:
    if isinstance(point.value, Histogram):
        return histogram is not None and same_histogram(point.value, histogram, point.hint_given)
    return histogram is None and point.value is not None and almost_equal(point.value, value)


def _check_vector(command: Eval, value: VectorResult) -> None:
    if command.scalar is not None:
        raise Mismatch(f"expected a scalar, got a vector of {len(value.labels)}")
    expected: dict[LabelSet, tuple[int, Point]] = {
        labels: (position, points[0]) for position, (labels, points) in enumerate(command.series)
    }
    seen = set()
    for position, labels in enumerate(value.labels):
        shown = _shown(value.histograms[position] or float(value.values[position]))
        if labels not in expected:
            raise Mismatch(f"unexpected {labels} {shown}; expected {_wanted(command)}")
        wanted_position, point = expected[labels]
        if command.ordered and wanted_position != position:
            raise Mismatch(f"{labels} is at position {position}, expected {wanted_position}")
        if not _matches(point, float(value.values[position]), value.histograms[position]):
            raise Mismatch(f"expected {labels} {_shown(point.value)}, got {shown}")
        if labels in seen:
            raise Mismatch(f"{labels} occurs twice")
        seen.add(labels)
    for labels, (_, point) in expected.items():
        if labels not in seen:
            raise Mismatch(f"expected {labels} {_shown(point.value)}, not found")


def _check_matrix(command: Eval, value: MatrixResult) -> None:
    if command.scalar is not None or command.ordered:
        raise Mismatch("expected a scalar or an ordered vector, got a matrix")
    expected = dict(command.series)
    seen = set()
    if [one.labels.pairs for one in value] != sorted(one.labels.pairs for one in value):
        raise Mismatch("the matrix is not sorted by labels")
    for one in value:
        got: dict[int, tuple[float, Histogram | None]] = {
            time: (number, None) for time, number in zip(one.timestamps_ms.tolist(), one.values.tolist(), strict=True)
        }
        for time, histogram in zip(one.histogram_timestamps_ms.tolist(), one.histograms, strict=True):
            got[time] = (0.0, histogram)
        shown = {time: _shown(histogram or number) for time, (number, histogram) in sorted(got.items())}
        if one.labels not in expected:
            raise Mismatch(f"unexpected {one.labels} {shown}; expected {_wanted(command)}")
        seen.add(one.labels)
        _check_series(command, one.labels, expected[one.labels], got, shown)
    for labels, points in expected.items():
        if labels not in seen:
            raise Mismatch(f"expected {labels} {[_shown(point.value) for point in points]}, not found")


def _check_series(
    command: Eval,
    labels: LabelSet,
    points: list[Point],
    got: dict[int, tuple[float, Histogram | None]],
    shown: dict[int, str],
) -> None:
    wanted = {command.start_ms + i * command.step_ms: p for i, p in enumerate(points) if p.value is not None}
    if wanted.keys() != got.keys():
        raise Mismatch(f"expected {labels} at {sorted(wanted)}, got {shown}")
    for time, point in wanted.items():
        if not _matches(point, *got[time]):
            raise Mismatch(f"expected {labels} {_shown(point.value)} at {time}, got {shown[time]} (all: {shown})")
