"""`line_format` and `label_format`: lines and labels from templates."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR, ERROR_DETAILS, Check, Entries, Stage, valid
from lakerunner.query.logql.stages.template import parse
from lakerunner.query.logql.stages.template.columns import Formatted, Texts, plain_texts
from lakerunner.query.logql.stages.template.evaluate import evaluate
from lakerunner.query.logql.stages.template.frames import label_texts
from lakerunner.query.logql.stages.template.nodes import Action, Field, Template

#: The error of entries whose template fails.
TEMPLATE_ERROR = "TemplateFormatErr"
#: These are no labels to Loki, except where a template sees all labels of an entry.
_NO_LABELS = (ERROR, ERROR_DETAILS)
#: A byte of no character, as `trunc` and `b64dec` leave it.
_BROKEN_BYTE = re.compile("[\udc80-\udcff]")


def line_format(stage: ast.LineFormat) -> Stage:
    """Replace each line by what the template gives; a line whose template fails stays as it was."""
    template = parse(stage.template)
    label = _only_label(template)

    def run(entries: Entries, check: Check) -> Entries:
        if label is not None:
            check()
            return entries.with_lines(_label_lines(entries, label))
        made = evaluate(template, "line", entries, check)
        lines = _valid(made.texts, _line_text)
        if made.errors is None:
            return entries.with_lines(lines)
        lines = pc.if_else(made.errors.is_null(), lines, entries.lines)
        return _with_errors(entries.with_lines(lines), made)

    return run


def label_format(stage: ast.LabelFormat) -> Stage:
    """Rename labels, and set labels to what templates give, one assignment after another.

    All templates of the stage see the labels as they were when the first of them was reached.
    """
    templates = [parse(each.value) if each.is_template else None for each in stage.assignments]

    def run(entries: Entries, check: Check) -> Entries:
        seen: Entries | None = None
        for assignment, template in zip(stage.assignments, templates, strict=True):
            check()
            if template is None:
                entries = _renamed(entries, assignment)
                continue
            seen = entries if seen is None else seen
            made = evaluate(template, "label", seen, check)
            values = _valid(made.texts, _label_text)
            if made.errors is not None:
                values = pc.if_else(made.errors.is_null(), values, pa.scalar(None, pa.string()))
                entries = _with_errors(entries, made)
            entries = entries.with_label(assignment.label, values)
        return entries

    return run


def _only_label(template: Template) -> str | None:
    """The label, if the template is only `{{.label}}`. Such a template does not see `__error__`."""
    if len(template.root.nodes) != 1 or not isinstance(action := template.root.nodes[0], Action):
        return None
    commands = action.pipe.commands
    if len(commands) != 1 or len(commands[0].args) != 1:
        return None
    operand = commands[0].args[0]
    return operand.path[0] if isinstance(operand, Field) and len(operand.path) == 1 else None


def _label_lines(entries: Entries, label: str) -> pa.StringArray:
    column = label_texts(entries, label)
    if isinstance(column, Texts) and label not in _NO_LABELS:
        return plain_texts(column)
    return pa.repeat(pa.scalar("", pa.string()), len(entries))


def _renamed(entries: Entries, assignment: ast.Assignment) -> Entries:
    """The label under its new name, where an entry has it."""
    if assignment.value in _NO_LABELS or assignment.value == assignment.label:
        return entries
    values = entries.label(assignment.value)
    if values is None:
        return entries
    return entries.with_label(assignment.label, values).without_label(assignment.value)


def _with_errors(entries: Entries, made: Formatted) -> Entries:
    """Mark the entries whose template failed. Unlike other stages' errors, theirs replace an earlier one."""
    assert made.errors is not None
    failed = pa.array(valid(made.errors))
    marked = entries.with_label(ERROR, pc.if_else(failed, TEMPLATE_ERROR, pa.scalar(None, pa.string())))
    return marked.with_label(ERROR_DETAILS, made.errors)


def _line_text(raw: bytes) -> str:
    """Of a line, each byte of no character is replaced."""
    return _BROKEN_BYTE.sub("\ufffd", raw.decode(errors="surrogateescape"))


def _label_text(raw: bytes) -> str:
    """Of a label, the bytes of half a character are replaced together: Loki leaves that to its clients."""
    return raw.decode(errors="replace")


def _valid(texts: pa.Array, text_of: Callable[[bytes], str]) -> pa.StringArray:
    """The texts with U+FFFD for what is not UTF-8."""
    if pa.types.is_string(texts.type):
        return texts
    encoded = texts.dictionary_encode()
    raw = encoded.dictionary.to_pylist()
    values = [text_of(each) for each in raw]
    return pa.array(values, pa.string()).take(encoded.indices)
