"""Reads what a materialization rule selects and computes, in the language of its signal, and refuses what it cannot do.

What is refused here is refused by `rules check` and `rules apply`, at its place in the file, so that the tasks of
ingest only ever see rules that they can evaluate exactly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from lakerunner.model.compute import Compute
from lakerunner.model.labels import METRIC_NAME, prometheus_label
from lakerunner.query.logql import ast as logql
from lakerunner.query.logql.parser import parse as parse_logql
from lakerunner.query.logql.stages.template import parse as parse_template
from lakerunner.query.logql.stages.template.reads import reads
from lakerunner.query.promql import ast as promql
from lakerunner.query.promql.parser import parse as parse_promql
from lakerunner.query.series.classic_names import base_names
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.traceql import ast as traceql
from lakerunner.query.traceql.check import fields_in
from lakerunner.query.traceql.fields import level_of
from lakerunner.query.traceql.language import compiled as compiled_traceql
from lakerunner.rules.definitions import Materialize
from lakerunner.rules.source import Source, Span

_CONVERTED = re.compile(r"(duration|duration_seconds|bytes)\(\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*\)")
#: What is computed of samples, and the field that they have.
_OF_SAMPLES = (Compute.COUNT, Compute.SUM, Compute.MIN, Compute.MAX)
VALUE = "value"
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
#: Stages of LogQL that a rule may have.
_STAGES = (
    logql.LineFilter,
    logql.Json,
    logql.Logfmt,
    logql.Regexp,
    logql.PatternParser,
    logql.Unpack,
    logql.LabelFilter,
    logql.Decolorize,
    logql.Drop,
    logql.Keep,
    logql.LineFormat,
    logql.LabelFormat,
)


@dataclass(frozen=True, slots=True)
class LogMatch:
    selector: logql.LogSelector
    #: What is computed of each line; None for lines, their bytes and different values.
    unwrap: logql.Unwrap | None
    #: The label whose different values are counted; empty where none is.
    distinct: str
    #: Dimensions of the rule, and the labels that they become.
    dimensions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MetricMatch:
    #: The metric whose samples are read, and the other matchers.
    metric: str
    matchers: tuple[Matcher, ...]
    dimensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SpanMatch:
    condition: traceql.FieldExpr | None
    #: What is computed of each span; None for spans.
    argument: traceql.Field | None
    dimensions: tuple[tuple[traceql.Field, str], ...]


def dimension_labels(rule: Materialize) -> tuple[tuple[str, str], ...]:
    """The dimensions of a rule, and the labels of its series that they become."""
    if rule.signal == "traces":
        return tuple((name, _span_label(name)) for name in rule.dimensions)
    return tuple((name, name) for name in rule.dimensions)


@lru_cache(maxsize=4096)
def _span_label(name: str) -> str:
    for scope in ("span.", "resource.", "instrumentation.", "span:", "."):
        if name.startswith(scope) and len(name) > len(scope):
            return prometheus_label(name.removeprefix(scope).strip('"'))
    return prometheus_label(name)


def log_match(rule: Materialize) -> LogMatch:
    source = _source(rule)
    try:
        tree = parse_logql(rule.match)
    except ParseError as error:
        raise source.query_error("match", error) from None
    if not isinstance(tree, logql.LogSelector):
        raise source.error("match", "match: a rule selects log lines, and this is a metric query")
    for stage in tree.stages:
        if not isinstance(stage, _STAGES):
            raise source.error("match", "match: rules do not support this stage", stage.start, stage.end)
        if reason := _unfit_template(stage):
            raise source.error("match", f"match: {reason}", stage.start, stage.end)
    for name in rule.dimensions:
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            raise source.error("dimensions", f"dimensions: {name!r} is no label of log lines")
    is_distinct = rule.compute is Compute.DISTINCT
    if is_distinct:
        _require_counted(rule, source)
    unwrap = None if is_distinct else _unwrap(rule, source)
    return LogMatch(tree, unwrap, rule.field if is_distinct else "", dimension_labels(rule))


def _unfit_template(stage: logql.Stage) -> str:
    """Why a rule cannot have the template of a stage; empty if it can, or there is none."""
    texts: tuple[str, ...] = ()
    if isinstance(stage, logql.LineFormat):
        texts = (stage.template,)
    elif isinstance(stage, logql.LabelFormat):
        texts = tuple(each.value for each in stage.assignments if each.is_template)
    for text in texts:
        found = reads(parse_template(text))
        if found.labels is None:
            return "a template of a rule names the labels that it reads, and not all of them as one value"
        if found.time or found.present:
            return "a template of a rule reads neither the time of a line nor the present"
    return ""


def _require_counted(rule: Materialize, source: Source) -> None:
    """Refuse what is no label whose values can be counted."""
    if not _LABEL.fullmatch(rule.field):
        raise source.error("compute", f"compute: {rule.field!r} is no label of log lines", hint="name a label")
    if rule.field in rule.dimensions:
        reason = f"compute: {rule.field!r} is a dimension too, so that every series has one value of it"
        raise source.error("compute", reason)


def _unwrap(rule: Materialize, source: Source) -> logql.Unwrap | None:
    if not rule.compute.needs_field:
        return None
    found = _CONVERTED.fullmatch(rule.field)
    conversion, name = (found[1], found[2]) if found else ("", rule.field)
    if not _LABEL.fullmatch(name):
        hint = "name a label, or duration(label), duration_seconds(label) or bytes(label)"
        raise source.error("compute", f"compute: {rule.field!r} is no label of log lines", hint=hint)
    return logql.Unwrap(name, conversion)


def span_match(rule: Materialize) -> SpanMatch:
    source = _source(rule)
    try:
        query = compiled_traceql(rule.match)
    except ParseError as error:
        raise source.query_error("match", error) from None
    root = query.root
    stages = root.stages if isinstance(root, traceql.Pipeline) else ()
    if len(stages) != 1 or not isinstance(stages[0], traceql.Filter) or query.hints:
        raise source.error("match", "match: a rule selects spans by one filter in braces, such as { status = error }")
    condition = stages[0].condition
    for field in () if condition is None else fields_in(condition):
        if level_of(field) == "trace":
            reason = "match: a rule sees one span at a time, and this asks about its whole trace"
            raise source.error("match", reason)
    if rule.compute is Compute.BYTES:
        raise source.error("compute", "compute: only log lines have bytes")
    argument = _field(rule.field, "compute", source) if rule.compute.needs_field else None
    if rule.compute is Compute.DISTINCT and rule.field in rule.dimensions:
        reason = f"compute: {rule.field!r} is a dimension too, so that every series has one value of it"
        raise source.error("compute", reason)
    dimensions = tuple((_field(name, "dimensions", source), _span_label(name)) for name in rule.dimensions)
    labels = [label for _, label in dimensions]
    for label in labels:
        if labels.count(label) > 1:
            raise source.error("dimensions", f"dimensions: two of them become the label {label!r}")
    return SpanMatch(condition, argument, dimensions)


def metric_match(rule: Materialize) -> MetricMatch:
    source = _source(rule)
    try:
        tree = promql.unwrapped(parse_promql(rule.match))
    except ParseError as error:
        raise source.query_error("match", error) from None
    if not isinstance(tree, promql.VectorSelector):
        raise source.error("match", 'match: a rule selects samples of a metric, such as http_requests_total{job="a"}')
    if tree.offset is not None or tree.at is not None or tree.anchored or tree.smoothed:
        raise source.error("match", "match: a rule reads samples as they come, without offset, @ and modifiers")
    names = [each for each in tree.matchers if each.name == METRIC_NAME]
    if [each.kind for each in names] != [MatchKind.EQUAL]:
        raise source.error("match", "match: a rule reads the samples of one metric, which it names")
    others = tuple(each for each in tree.matchers if each.name != METRIC_NAME)
    for name in (*(each.name for each in others), *rule.dimensions):
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            key = "dimensions" if name in rule.dimensions else "match"
            raise source.error(key, f"{key}: {name!r} is no label of series that a rule can read")
    if rule.compute not in _OF_SAMPLES:
        reason = f"compute: {rule.compute} of samples is not supported"
        raise source.error("compute", reason, hint="use count, sum(value), min(value) or max(value)")
    if rule.compute.needs_field and rule.field != VALUE:
        raise source.error("compute", f"compute: samples have a value, and no {rule.field!r}", hint="use sum(value)")
    if len(base_names(names[0].value)) > 1:
        reason = f"match: {names[0].value} may be a part of a histogram, which is stored as one sample"
        raise source.error("match", reason)
    if names[0].value == rule.name:
        raise source.error("match", "match: the rule would read its own series")
    return MetricMatch(names[0].value, others, rule.dimensions)


def _field(name: str, key: str, source: Source) -> traceql.Field:
    """A field of spans, by its name in TraceQL."""
    try:
        query = compiled_traceql("{ " + name + " != nil }")
        stage = query.root.stages[0] if isinstance(query.root, traceql.Pipeline) else None
        condition = stage.condition if isinstance(stage, traceql.Filter) else None
    except ParseError:
        condition = None
    field = condition.left if isinstance(condition, traceql.Binary) else None
    if not isinstance(field, traceql.Attribute | traceql.Intrinsic) or level_of(field) != "span":
        hint = "name for example resource.service.name, span.http.route, name, status, kind or duration"
        raise source.error(key, f"{key}: {name!r} is no field of a span", hint=hint)
    return field


def _source(rule: Materialize) -> Source:
    if rule.source is not None:
        return rule.source
    # A rule that comes from the index has no file; its own text stands for it.
    return Source(rule.match, Span(0, len(rule.match)), {"match": Span(0, len(rule.match))})
