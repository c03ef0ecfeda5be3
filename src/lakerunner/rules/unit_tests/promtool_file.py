"""Reads a unit-test file in promtool's format. Unknown fields are errors that name their place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from lakerunner.model.errors import BadInput
from lakerunner.query.syntax.durations import is_duration, parse_duration_ms

#: Characters of one file.
_MAX_LENGTH = 4 << 20


@dataclass(frozen=True, slots=True)
class ExpectedAlert:
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlertTest:
    eval_time_ms: int
    alertname: str
    expected: tuple[ExpectedAlert, ...]


@dataclass(frozen=True, slots=True)
class ExpectedSample:
    labels: str
    value: float
    #: A histogram in the notation of series; empty: the value is a float.
    histogram: str = ""


@dataclass(frozen=True, slots=True)
class ExprTest:
    expr: str
    eval_time_ms: int
    expected: tuple[ExpectedSample, ...]


@dataclass(frozen=True, slots=True)
class TestGroup:
    """One element of `tests`."""

    name: str
    interval_ms: int
    start_ms: int
    #: Series and values as written.
    input_series: tuple[tuple[str, str], ...]
    alert_tests: tuple[AlertTest, ...]
    expr_tests: tuple[ExprTest, ...]
    external_labels: Mapping[str, str]
    external_url: str

    @property
    def last_ms(self) -> int:
        """The latest time that a test asks for, after the start."""
        times = [test.eval_time_ms for test in self.alert_tests] + [test.eval_time_ms for test in self.expr_tests]
        return max(times, default=0)


@dataclass(frozen=True, slots=True)
class TestFile:
    rule_files: tuple[str, ...]
    evaluation_interval_ms: int
    group_eval_order: tuple[str, ...]
    fuzzy_compare: bool
    tests: tuple[TestGroup, ...]


def read_test_file(text: str) -> TestFile:
    """A unit-test file; a BadInput that names the place of a mistake if it is none."""
    if len(text) > _MAX_LENGTH:
        raise BadInput(f"cannot read a unit test: it has more than {_MAX_LENGTH:,} characters", hint="split it")
    try:
        # Every scalar stays the text that it is written as.
        document = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise BadInput(f"cannot read a unit test: it is not YAML: {error}") from None
    top = _mapping(
        document, "the file", ("rule_files", "evaluation_interval", "group_eval_order", "tests", "fuzzy_compare")
    )
    interval_ms = _duration(top, "evaluation_interval", "the file") or 60_000
    order = tuple(_texts(top, "group_eval_order"))
    repeated = next((name for at, name in enumerate(order) if name in order[:at]), None)
    if repeated is not None:
        raise BadInput(f"group name repeated in evaluation order: {repeated}")
    tests = [_test(each, f"tests[{at}]", interval_ms) for at, each in enumerate(_list(top, "tests", "the file"))]
    return TestFile(
        rule_files=tuple(_texts(top, "rule_files")),
        evaluation_interval_ms=interval_ms,
        group_eval_order=order,
        fuzzy_compare=_text(top, "fuzzy_compare", "the file").lower() in ("true", "yes", "on"),
        tests=tuple(tests),
    )


class _Loader(yaml.BaseLoader):
    """Refuses a name that is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"{twice!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _test(node: Any, where: str, interval_ms: int) -> TestGroup:
    known = (
        *("interval", "input_series", "alert_rule_test", "promql_expr_test", "external_labels", "external_url"),
        *("name", "start_timestamp"),
    )
    fields = _mapping(node, where, known)
    series = []
    for at, each in enumerate(_list(fields, "input_series", where)):
        place = f"{where}.input_series[{at}]"
        one = _mapping(each, place, ("series", "values"))
        series.append((_text(one, "series", place), _text(one, "values", place)))
    alerts = _list(fields, "alert_rule_test", where)
    exprs = _list(fields, "promql_expr_test", where)
    return TestGroup(
        name=_text(fields, "name", where),
        interval_ms=_duration(fields, "interval", where) or interval_ms,
        start_ms=_start(fields, where),
        input_series=tuple(series),
        alert_tests=tuple(_alert_test(each, f"{where}.alert_rule_test[{at}]") for at, each in enumerate(alerts)),
        expr_tests=tuple(_expr_test(each, f"{where}.promql_expr_test[{at}]") for at, each in enumerate(exprs)),
        external_labels=_labels(fields, "external_labels", where),
        external_url=_text(fields, "external_url", where),
    )


def _alert_test(node: Any, where: str) -> AlertTest:
    fields = _mapping(node, where, ("eval_time", "alertname", "exp_alerts"))
    name = _text(fields, "alertname", where)
    if not name:
        raise BadInput(f"cannot read a unit test: {where} misses alertname")
    expected = []
    for at, each in enumerate(_list(fields, "exp_alerts", where)):
        place = f"{where}.exp_alerts[{at}]"
        one = _mapping(each, place, ("exp_labels", "exp_annotations"))
        expected.append(ExpectedAlert(_labels(one, "exp_labels", place), _labels(one, "exp_annotations", place)))
    return AlertTest(_duration(fields, "eval_time", where), name, tuple(expected))


def _expr_test(node: Any, where: str) -> ExprTest:
    fields = _mapping(node, where, ("expr", "eval_time", "exp_samples"))
    expected = []
    for at, each in enumerate(_list(fields, "exp_samples", where)):
        place = f"{where}.exp_samples[{at}]"
        one = _mapping(each, place, ("labels", "value", "histogram"))
        expected.append(
            ExpectedSample(_text(one, "labels", place), _number(one, "value", place), _text(one, "histogram", place))
        )
    return ExprTest(_text(fields, "expr", where), _duration(fields, "eval_time", where), tuple(expected))


def _mapping(node: Any, where: str, known: Sequence[str]) -> dict[str, Any]:
    if node in ("", None):
        return {}
    if not isinstance(node, dict):
        raise BadInput(f"cannot read a unit test: {where} is no mapping of names to values")
    for name in node:
        if name not in known:
            raise BadInput(
                f"cannot read a unit test: {where} has no field {name!r}", hint=f"it may have {', '.join(known)}"
            )
    return node


def _list(fields: Mapping[str, Any], name: str, where: str) -> list[Any]:
    found = fields.get(name) or []
    if not isinstance(found, list):
        raise BadInput(f"cannot read a unit test: {name} of {where} is no list")
    return found


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    found = _list(fields, name, "the file")
    if not all(isinstance(each, str) for each in found):
        raise BadInput(f"cannot read a unit test: {name} is no list of texts")
    return found


def _text(fields: Mapping[str, Any], name: str, where: str) -> str:
    found = fields.get(name, "")
    if not isinstance(found, str):
        raise BadInput(f"cannot read a unit test: {name} of {where} is no text")
    return found


def _labels(fields: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    found = fields.get(name) or {}
    if not isinstance(found, dict) or not all(isinstance(each, str) for pair in found.items() for each in pair):
        raise BadInput(f"cannot read a unit test: {name} of {where} is no mapping of names to texts")
    return found


def _duration(fields: Mapping[str, Any], name: str, where: str) -> int:
    text = _text(fields, name, where)
    if text in ("", "0"):
        return 0
    if not is_duration(text):
        raise BadInput(
            f'cannot read a unit test: {name} of {where}: not a valid duration string: "{text}"',
            hint="write for example 30s or 1h30m",
        )
    return parse_duration_ms(text)


def _number(fields: Mapping[str, Any], name: str, where: str) -> float:
    text = _text(fields, name, where) or "0"
    plain = text.replace("_", "").lstrip("+").lower()
    try:
        return float(plain.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        pass
    try:
        return float(int(plain, 0))
    except ValueError:
        raise BadInput(f"cannot read a unit test: {name} of {where}: {text!r} is no number") from None


def _start(fields: Mapping[str, Any], where: str) -> int:
    text = _text(fields, "start_timestamp", where)
    if not text:
        return 0
    try:
        return round(float(text) * 1000)
    except ValueError:
        pass
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadInput(f'cannot parse "{text}" to a valid timestamp ({where})', hint="write RFC 3339 or Unix seconds")
    return round(moment.timestamp() * 1000)
