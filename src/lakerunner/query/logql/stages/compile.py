"""Compiles the stages of a pipeline: what a stage can do once is done here, not for each batch of entries."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Check, Entries, Stage
from lakerunner.query.logql.line_patterns import parse_parser_pattern
from lakerunner.query.logql.stages.choices import dropped, kept
from lakerunner.query.logql.stages.decolorize import decolorized
from lakerunner.query.logql.stages.fields import Wanted
from lakerunner.query.logql.stages.formats import label_format, line_format
from lakerunner.query.logql.stages.json_fields import json_fields, unpacked
from lakerunner.query.logql.stages.json_paths import compiled_paths, json_values
from lakerunner.query.logql.stages.label_filters import filtered
from lakerunner.query.logql.stages.line_filters import line_filter
from lakerunner.query.logql.stages.logfmt import logfmt_fields
from lakerunner.query.logql.stages.parse_and_filter import parse_and_filter
from lakerunner.query.logql.stages.patterns import line_pattern, pattern_fields
from lakerunner.query.logql.stages.regexps import regexp_stage

_PARSERS = (ast.Json, ast.Logfmt, ast.Regexp, ast.PatternParser)


def compile_stages(stages: Sequence[ast.Stage], wanted: Wanted = None, *, need_lines: bool = True) -> Stage:
    """The stages one after the other.

    `wanted` names the labels that the stages or what follows them need; others need not be made. Errors are found all
    the same, except behind the last of these labels in a line. If what follows does not need the lines, they are empty
    after the last stage that reads them, and filters behind it do not copy them.
    """
    groups = list(_groups(in_order(stages)))
    readers = [number for number, (first, *_) in enumerate(groups) if reads_lines(first)]
    last = readers[-1] if readers and not need_lines else -1
    assigned: set[str] = set()
    steps: list[Stage] = []
    for number, group in enumerate(groups):
        assigned |= assigned_labels(group[0])
        steps.append(_step(group, wanted, frozenset(assigned), is_last=number == last))

    def run(entries: Entries, check: Check) -> Entries:
        for step in steps:
            check()
            entries = step(entries, check)
        return entries

    return run


def reads_lines(stage: ast.Stage) -> bool:
    return not isinstance(stage, ast.LabelFilter | ast.Drop | ast.Keep)


def in_order(stages: Sequence[ast.Stage]) -> list[ast.Stage]:
    """The stages in the order in which Loki runs them.

    Line filters come before everything else, because they are cheap. Only `line_format` and `unpack`, which change the
    line, stay before the filters that follow them. `decolorize` changes it too, but Loki overlooks that, unless a label
    filter is between them.
    """
    ordered: list[ast.Stage] = []
    filters: list[ast.Stage] = []
    others: list[ast.Stage] = []
    for stage in stages:
        (filters if isinstance(stage, ast.LineFilter) else others).append(stage)
        coloured = isinstance(stage, ast.LabelFilter) and any(isinstance(each, ast.Decolorize) for each in others)
        if coloured or isinstance(stage, ast.LineFormat | ast.Unpack):
            ordered += filters + others
            filters, others = [], []
    return ordered + filters + others


def _groups(stages: Sequence[ast.Stage]) -> Iterator[list[ast.Stage]]:
    """The stages, a parser together with the label filters right behind it."""
    group: list[ast.Stage] = []
    for stage in stages:
        if group and not isinstance(stage, ast.LabelFilter):
            yield group
            group = []
        if not group and not isinstance(stage, _PARSERS):
            yield [stage]
        else:
            group.append(stage)
    if group:
        yield group


def assigned_labels(stage: ast.Stage) -> frozenset[str]:
    """The labels that a stage names: if it is a parser, it asks no filter when it finds them."""
    match stage:
        case ast.Json(extractions) | ast.Logfmt(extractions):
            return frozenset(each.label for each in extractions)
        case ast.LabelFormat(assignments):
            return frozenset(each.label for each in assignments)
    return frozenset()


def _step(group: Sequence[ast.Stage], wanted: Wanted, assigned: frozenset[str], *, is_last: bool) -> Stage:
    """`is_last`: nobody reads the lines after the first stage of the group."""
    parser, *others = group
    filters = [stage for stage in others if isinstance(stage, ast.LabelFilter)]
    parse_some = functools.partial(_compile_last if is_last else compile_stage, parser, assigned=assigned)
    if not filters:
        return parse_some(wanted)
    return parse_and_filter(parse_some, [stage.condition for stage in filters], wanted, assigned)


def _compile_last(stage: ast.Stage, wanted: Wanted, assigned: frozenset[str]) -> Stage:
    run = compile_stage(stage, wanted, assigned)
    return lambda entries, check: run(entries, check).without_lines()


def compile_stage(stage: ast.Stage, wanted: Wanted = None, assigned: frozenset[str] = frozenset()) -> Stage:
    """One stage; `assigned` has the labels that it or earlier stages name."""
    match stage:
        case ast.LineFilter():
            return line_filter(stage)
        case ast.LabelFilter(condition):
            return lambda entries, check: filtered(entries, condition, check, assigned)
        case ast.Json(()):
            return lambda entries, check: json_fields(entries, wanted, check)
        case ast.Json(extractions):
            paths = compiled_paths(extractions)
            return lambda entries, check: json_values(entries, extractions, paths, wanted, check)
        case ast.Logfmt():
            return lambda entries, check: logfmt_fields(entries, stage, wanted, check)
        case ast.Regexp(text):
            return regexp_stage(text, wanted)
        case ast.PatternParser(text):
            pattern = line_pattern(parse_parser_pattern(text))
            return lambda entries, check: pattern_fields(entries, pattern, wanted, check)
        case ast.Unpack():
            return lambda entries, check: unpacked(entries, wanted, check)
        case ast.Decolorize():
            return decolorized
        case ast.Drop():
            return lambda entries, check: dropped(entries, stage, check)
        case ast.Keep():
            return lambda entries, check: kept(entries, stage, check)
        case ast.LineFormat():
            return line_format(stage)
        case ast.LabelFormat():
            return label_format(stage)
