"""Functions that change labels or the order of series: label_replace, label_join, sorting."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cmp_to_key

import numpy as np

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series.block import Block, EvaluationError
from lakerunner.query.series.patterns import Meter, Pattern, whole
from lakerunner.query.vectors.context import Evaluation

_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+)|(\$))", re.ASCII)
_CHUNK = re.compile(r"[0-9]+|[^0-9]+")
#: Go uses insertion sort for up to this many elements.
_INSERTION_SORT_MAX = 12


def _check_label(name: str, role: str, function: str) -> None:
    if not name or any(0xD800 <= ord(c) <= 0xDFFF for c in name):
        raise EvaluationError(f"invalid {role} label name in {function}(): {name}")


def check_label_replace(target: str, pattern: str) -> None:
    """Refuse invalid arguments. Called before the vector is evaluated, whose errors come second."""
    try:
        whole(pattern, captures=True)
    except BadInput:
        raise EvaluationError(f"invalid regular expression in label_replace(): {pattern}") from None
    _check_label(target, "destination", "label_replace")


def label_replace(evaluation: Evaluation, block: Block, target: str, template: str, source: str, pattern: str) -> Block:
    return relabelled(evaluation, block, target, template, source, pattern).merged()


def relabelled(evaluation: Evaluation, block: Block, target: str, template: str, source: str, pattern: str) -> Block:
    """As `label_replace`, but series that come to have the same labels stay apart."""
    compiled = whole(pattern, captures=True)
    pieces = _pieces(template, compiled)
    meter = Meter(evaluation.check_time)
    labels: list[LabelSet] = []
    drop = block.drop_name.copy()
    for row, label_set in enumerate(block.labels):
        value = label_set.get(source)
        meter.spend(compiled.steps(len(value), compiled.groups))
        groups = compiled.groups_of(value)
        if groups is None:
            labels.append(label_set)
            continue
        text = "".join([groups[piece] if isinstance(piece, int) else piece for piece in pieces])
        evaluation.spend_label(text)
        labels.append(label_set.with_label(target, text))
        if target == METRIC_NAME:
            drop[row] = False
    return block.relabelled(labels, drop)


def _pieces(template: str, pattern: Pattern) -> list[str | int]:
    """Split the template, once for all series, into literal text and group numbers.

    `$1`, `${1}` and `${name}` are groups, `$$` is a dollar; references to unknown groups are empty.
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
        group = pattern.group_number(name)
        if group is not None:
            pieces.append(group)
    pieces.append(template[end:])
    return [piece for piece in pieces if piece != ""]


def check_label_join(target: str, sources: Sequence[str]) -> None:
    for source in sources:
        _check_label(source, "source", "label_join")
    _check_label(target, "destination", "label_join")


def label_join(evaluation: Evaluation, block: Block, target: str, separator: str, sources: Sequence[str]) -> Block:
    labels: list[LabelSet] = []
    for label_set in block.labels:
        text = separator.join(label_set.get(source) for source in sources)
        evaluation.spend_label(text)
        labels.append(label_set.with_label(target, text))
    drop = np.zeros_like(block.drop_name) if target == METRIC_NAME else block.drop_name
    return block.relabelled(labels, drop).merged()


def sorted_by_value(block: Block, descending: bool) -> Block:
    """Sort a block of one step. NaN comes last in both directions; histograms are removed."""
    block = block.floats().pruned()
    values = block.values[:, 0]
    keys = -values if descending else values
    return block.rows(np.lexsort((keys, np.isnan(values))))


def sorted_by_labels(evaluation: Evaluation, block: Block, names: Sequence[str], descending: bool) -> Block:
    """Sort by the given labels in natural order, then by all labels."""
    sign = -1 if descending else 1

    def compare(left: int, right: int) -> int:
        evaluation.check_time_sometimes()
        one, other = block.labels[left], block.labels[right]
        for name in names:
            if one.get(name) != other.get(name):
                return -sign if _is_before(one.get(name), other.get(name)) else sign
        return sign * ((one.pairs > other.pairs) - (one.pairs < other.pairs))

    rows = list(range(len(block.labels)))
    return block.rows(
        _insertion_sorted(rows, compare) if len(rows) <= _INSERTION_SORT_MAX else sorted(rows, key=cmp_to_key(compare))
    )


def _insertion_sorted(rows: list[int], compare: Callable[[int, int], int]) -> list[int]:
    """Sort as Go sorts short lists. It decides the order of values that are equal as numbers, like `1` and `01`."""
    for i in range(1, len(rows)):
        while i > 0 and compare(rows[i], rows[i - 1]) < 0:
            rows[i], rows[i - 1] = rows[i - 1], rows[i]
            i -= 1
    return rows


def _is_before(left: str, right: str) -> bool:
    """Natural order: runs of digits compare as numbers if they fit into 64 bits, everything else as text."""
    ours, theirs = _CHUNK.findall(left), _CHUNK.findall(right)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        one, other = _integer(a), _integer(b)
        if a != b and (min(one, other) < 0 or one != other):
            return bool(a < b) if min(one, other) < 0 else one < other
        if i == len(ours) - 1:
            return True
        if i == len(theirs) - 1:
            return False
    return False


def _integer(chunk: str) -> int:
    """The value of a run of digits, or -1."""
    value = int(chunk) if chunk.isascii() and chunk.isdigit() else -1
    return value if value < 1 << 63 else -1
