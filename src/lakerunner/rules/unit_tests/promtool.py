"""Runs unit tests of rule files in promtool's format, over series in memory, with the same engine as queries."""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from lakerunner.model.errors import BadInput, LakeError
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.logql.durations import format_go_duration
from lakerunner.query.run import run
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.go_format import exponent
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.durations import format_duration_ms
from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.strings import quote
from lakerunner.rules.definitions import PROMQL, Alert, Group, Record
from lakerunner.rules.evaluation.alerting import State
from lakerunner.rules.evaluation.rule import RuleState, Surroundings, evaluate_rule
from lakerunner.rules.evaluation.vector import RuleError, Sample, samples_of
from lakerunner.rules.file import read_rules
from lakerunner.rules.unit_tests.growing_source import GrowingSource
from lakerunner.rules.unit_tests.notation import parse_metric, parse_series
from lakerunner.rules.unit_tests.promtool_file import ExprTest, TestFile, TestGroup, read_test_file

#: Evaluations of one test: a longer test is more likely a mistake in an `eval_time`.
_MAX_EVALUATIONS = 100_000


@dataclass(frozen=True, slots=True)
class FileReport:
    """What a unit-test file found: its failures, as promtool words them, and how many tests ran."""

    path: str
    failures: tuple[str, ...]
    warnings: tuple[str, ...]
    tests: int


def is_promtool(text: str) -> bool:
    """Whether a test file is in promtool's format: it names rule files or has their kind of tests."""
    try:
        document = yaml.load(text, yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        return False
    return isinstance(document, dict) and ("rule_files" in document or "evaluation_interval" in document)


def run_file(path: Path, only: re.Pattern[str] | None = None) -> FileReport:
    """Run the tests of a file whose names match `only`."""
    try:
        file = read_test_file(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        return FileReport(str(path), (f"cannot read {path}: {error}",), (), 0)
    except LakeError as error:
        return FileReport(str(path), (str(error),), (), 0)
    warnings: list[str] = []
    rule_files = list(_found(file, path.parent, warnings))
    failures: list[str] = []
    tests = 0
    for number, test in enumerate(file.tests):
        if only is not None and not only.search(test.name):
            continue
        tests += 1
        name = test.name or f"unnamed#{number}"
        try:
            failures += _Run(file, test, _groups(file, rule_files)).failures()
        except LakeError as error:
            failures.append(f"    test: {name}, err: {error}")
    return FileReport(str(path), tuple(failures), tuple(warnings), tests)


def _found(file: TestFile, folder: Path, warnings: list[str]) -> Iterator[Path]:
    for pattern in file.rule_files:
        found = sorted(glob.glob(str(folder / pattern)))  # noqa: PTH207  (patterns may be absolute)
        if not found:
            warnings.append(f"no file match pattern {folder / pattern}")
        yield from map(Path, found)


def _groups(file: TestFile, paths: Sequence[Path]) -> list[Group]:
    groups: list[Group] = []
    for path in paths:
        try:
            groups += read_rules(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read {path}: {error}") from None
        except ParseError as error:
            raise BadInput(f"{path}: {error}") from None
    order = {name: at for at, name in enumerate(file.group_eval_order)}
    return sorted(groups, key=lambda group: order.get(group.name, 0))


@dataclass(frozen=True, slots=True)
class _Fired:
    """Labels and annotations of an alert, in the order in which promtool compares them."""

    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]


class _Run:
    """One test: its series, its rules and their states."""

    def __init__(self, file: TestFile, test: TestGroup, groups: Sequence[Group]) -> None:
        self._file = file
        self._test = test
        self._rules = [(group, rule) for group in groups for rule in group.rules if isinstance(rule, Record | Alert)]
        for _, rule in self._rules:
            if rule.language != PROMQL:
                raise BadInput(f"cannot test a rule in {rule.language}: unit tests have series, so only PromQL")
        self._states = [RuleState() for _ in self._rules]
        self._source = GrowingSource(until_ms=-(1 << 62))
        self._surroundings = Surroundings(test.external_labels, test.external_url)
        for series, values in test.input_series:
            labels, points = parse_series(f"{series} {values}")
            for number, point in enumerate(points):
                if point.value is not None:
                    is_histogram = isinstance(point.value, Histogram)
                    self._source.add(
                        labels,
                        test.start_ms + number * test.interval_ms,
                        0.0 if is_histogram else point.value,  # type: ignore[arg-type]
                        point.value if is_histogram else None,  # type: ignore[arg-type]
                    )

    def failures(self) -> list[str]:
        start_ms, step_ms = self._test.start_ms, self._file.evaluation_interval_ms
        if self._test.last_ms // step_ms > _MAX_EVALUATIONS:
            raise BadInput(
                f"the test needs more than {_MAX_EVALUATIONS:,} evaluations", hint="raise evaluation_interval"
            )
        found: list[str] = []
        for at_ms in range(start_ms, start_ms + self._test.last_ms + 1, step_ms):
            errors = self._evaluate(at_ms)
            found += errors
            if errors:
                return found
            due = sorted({each.eval_time_ms for each in self._test.alert_tests})
            for time_ms in due:
                if at_ms - start_ms <= time_ms < at_ms - start_ms + step_ms:
                    found += self._alert_failures(time_ms)
        for test in self._test.expr_tests:
            found += self._expr_failures(test)
        return found

    def _ask(self, text: str, time_ms: int) -> list[Sample]:
        options = QueryOptions(default_step_ms=self._file.evaluation_interval_ms)
        plan = language(PROMQL).compile(text, QueryTimes(time_ms, time_ms, 0), options)
        return samples_of(run(plan, self._source, lambda: None))

    def _evaluate(self, at_ms: int) -> list[str]:
        self._source.until_ms = at_ms
        errors = []
        for number, (group, rule) in enumerate(self._rules):
            offset_ms = round((group.query_offset_s or 0.0) * 1000)
            outcome = evaluate_rule(group, rule, self._states[number], at_ms, self._ask, self._surroundings, offset_ms)
            self._states[number] = outcome.state
            error = outcome.state.last_error
            for sample in outcome.samples:
                try:
                    self._source.add(sample.labels, at_ms - offset_ms, sample.value, sample.histogram)
                except RuleError as reason:
                    error = reason.message
            for labels in outcome.ended:
                try:
                    self._source.add(labels, at_ms - offset_ms, STALE)
                except RuleError:
                    # Another rule wrote the series: it goes on.
                    continue
            if error:
                name = rule.record if isinstance(rule, Record) else rule.alert
                errors.append(f"    rule: {name}, time: {format_go_duration(at_ms * NS_PER_MS)}, err: {error}")
        return errors

    def _alert_failures(self, time_ms: int) -> list[str]:
        failures = []
        for test in self._test.alert_tests:
            if test.eval_time_ms != time_ms:
                continue
            got = sorted(
                (
                    _Fired(alert.labels.pairs, alert.annotations.pairs)
                    for (_, rule), state in zip(self._rules, self._states, strict=True)
                    if isinstance(rule, Alert) and rule.alert == test.alertname
                    for alert in state.alerts
                    if alert.state is State.FIRING
                ),
                key=_order,
            )
            expected = sorted(
                (
                    _Fired(_pairs({**each.labels, "alertname": test.alertname}), _pairs(each.annotations))
                    for each in test.expected
                ),
                key=_order,
            )
            if got != expected:
                named = f"    name: {self._test.name},\n" if self._test.name else ""
                failures.append(
                    f"{named}    alertname: {test.alertname}, time: {format_duration_ms(time_ms)}, \n"
                    f"        exp:{_shown(expected)}, \n        got:{_shown(got)}"
                )
        return failures

    def _expr_failures(self, test: ExprTest) -> list[str]:
        where = f"    expr: {quote(test.expr)}, time: {format_duration_ms(test.eval_time_ms)},"
        try:
            got = self._ask(test.expr, self._test.start_ms + test.eval_time_ms)
            expected = [_expected(each.labels, each.value, each.histogram) for each in test.expected]
        except LakeError as error:
            return [f"{where} err: {error}"]
        got.sort(key=lambda sample: sample.labels.pairs)
        expected.sort(key=lambda sample: sample.labels.pairs)
        fuzzy = self._file.fuzzy_compare
        if len(got) == len(expected) and all(_same(*pair, fuzzy) for pair in zip(expected, got, strict=True)):
            return []
        return [f"{where}\n        exp: {_samples_shown(expected)}\n        got: {_samples_shown(got)}"]


def _expected(labels: str, value: float, histogram: str) -> Sample:
    try:
        metric = parse_metric(labels)
        if not histogram:
            return Sample(metric, value)
        _, points = parse_series("{} " + histogram)
    except LakeError as error:
        raise BadInput(f"labels {quote(labels)}: {error}") from None
    if len(points) != 1 or not isinstance(points[0].value, Histogram):
        raise BadInput(f"labels {quote(labels)}: expected one histogram, got {histogram!r}")
    return Sample(metric, 0.0, points[0].value)


def _same(expected: Sample, got: Sample, fuzzy: bool) -> bool:
    if expected.labels != got.labels or (expected.histogram is None) != (got.histogram is None):
        return False
    if expected.histogram is not None:
        assert got.histogram is not None
        return str(expected.histogram.compact()) == str(got.histogram.compact())
    a, b = expected.value, got.value
    return a == b or (fuzzy and b in (math.nextafter(a, -math.inf), math.nextafter(a, math.inf)))


def _pairs(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in labels.items()))


def _order(fired: _Fired) -> tuple[tuple[tuple[str, str], ...], ...]:
    return fired.labels, fired.annotations


def _labels_shown(pairs: Sequence[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{name}={quote(value)}" for name, value in pairs) + "}"


def _shown(fired: Sequence[_Fired]) -> str:
    if not fired:
        return "[]"
    indent = " " * 12
    items = [
        f"{indent}{at}:\n{indent}  Labels:{_labels_shown(each.labels)}\n"
        f"{indent}  Annotations:{_labels_shown(each.annotations)}"
        for at, each in enumerate(fired)
    ]
    return "[\n" + ",\n".join(items) + f"\n{indent}]"


def _samples_shown(samples: Sequence[Sample]) -> str:
    if not samples:
        return "nil"
    return ", ".join(f"{_labels_shown(sample.labels.pairs)} {_value_shown(sample)}" for sample in samples)


def _value_shown(sample: Sample) -> str:
    return exponent(sample.value).replace("e", "E") if sample.histogram is None else str(sample.histogram)
