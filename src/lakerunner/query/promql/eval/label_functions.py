"""Functions on labels and order: label_replace, label_join, sorting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import numpy as np

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.promql.eval.block import Block, EvaluationError
from lakerunner.query.promql.eval.context import Evaluation
from lakerunner.query.promql.matchers import compile_anchored

_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+)|(\$))", re.ASCII)
_CHUNK = re.compile(r"(\d+|\D+)")


def _check_label(name: str, role: str, function: str) -> None:
    if not name or any(0xD800 <= ord(c) <= 0xDFFF for c in name):
        raise EvaluationError(f"invalid {role} label name in {function}(): {name}")


def label_replace(evaluation: Evaluation, block: Block, target: str, template: str, source: str, pattern: str) -> Block:
    try:
        regex = compile_anchored(pattern)
    except BadInput:
        raise EvaluationError(f"invalid regular expression in label_replace(): {pattern}") from None
    _check_label(target, "destination", "label_replace")
    pieces = _pieces(template, regex)
    labels: list[LabelSet] = []
    drop = block.drop_name.copy()
    for row, label_set in enumerate(block.labels):
        found = regex.search(label_set.get(source))
        if found is None:
            labels.append(label_set)
            continue
        text = _expanded(pieces, found)
        evaluation.spend_label(text)
        labels.append(label_set.with_label(target, text))
        if target == METRIC_NAME:
            drop[row] = False
    return block.relabelled(labels, drop).merged()


def _pieces(template: str, regex: Any) -> list[str | int]:
    """The template taken apart once for all series: text as it is, and numbers of groups.

    `$1`, `${1}` and `${name}` are groups, `$$` is a dollar; what names no group is empty.
    """
    pieces: list[str | int] = []
    end = 0
    for reference in _REFERENCE.finditer(template):
        pieces.append(template[end : reference.start()])
        end = reference.end()
        name = reference.group(1) or reference.group(2)
        if name is None:
            pieces.append("$")
            continue
        group = int(name) if name.isdigit() else regex.groupindex.get(name)
        if group is not None and group <= regex.groups:
            pieces.append(group)
    pieces.append(template[end:])
    return [piece for piece in pieces if piece != ""]


def _expanded(pieces: Sequence[str | int], found: Any) -> str:
    groups = (found.group(), *found.groups(""))
    return "".join([groups[piece] or "" if isinstance(piece, int) else piece for piece in pieces])


def label_join(evaluation: Evaluation, block: Block, target: str, separator: str, sources: Sequence[str]) -> Block:
    for source in sources:
        _check_label(source, "source", "label_join")
    _check_label(target, "destination", "label_join")
    labels: list[LabelSet] = []
    for label_set in block.labels:
        text = separator.join(label_set.get(source) for source in sources)
        evaluation.spend_label(text)
        labels.append(label_set.with_label(target, text))
    drop = np.zeros_like(block.drop_name) if target == METRIC_NAME else block.drop_name
    return block.relabelled(labels, drop).merged()


def sorted_by_value(block: Block, descending: bool) -> Block:
    """For one step. NaN comes last either way; histograms have no place in an order."""
    block = block.floats().pruned()
    values = block.values[:, 0]
    keys = -values if descending else values
    return block.rows(np.lexsort((keys, np.isnan(values))))


def sorted_by_labels(evaluation: Evaluation, block: Block, names: Sequence[str], descending: bool) -> Block:
    """In natural order of the given labels, then of all labels."""

    @cmp_to_key
    def natural(left: str, right: str) -> int:
        evaluation.look_now_and_then()
        return _natural(left, right)

    def key(row: int) -> tuple[list[object], tuple[tuple[str, str], ...]]:
        labels = block.labels[row]
        return [natural(labels.get(name)) for name in names], labels.pairs

    return block.rows(sorted(range(len(block.labels)), key=key, reverse=descending))


def _natural(left: str, right: str) -> int:
    """Runs of digits compare as numbers, everything else as text."""
    if left == right:
        return 0
    for a, b in zip(_CHUNK.findall(left), _CHUNK.findall(right), strict=False):
        if a == b:
            continue
        if a.isdigit() and b.isdigit():
            if int(a) == int(b):
                continue
            return -1 if int(a) < int(b) else 1
        return -1 if a < b else 1
    return -1 if len(left) < len(right) else 1
