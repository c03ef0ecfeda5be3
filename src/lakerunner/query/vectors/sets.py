"""`and`, `or`, `unless`: which series are there, not what they are."""

from __future__ import annotations

import numpy as np

from lakerunner.query.promql.ast import Binary
from lakerunner.query.series.block import Block, Bools, concatenated
from lakerunner.query.vectors.binary import Signature, signature_of


def set_operation(expr: Binary, left: Block, right: Block) -> Block:
    signature = signature_of(expr.matching)
    ordinals: dict[Signature, int] = {}
    left_sig = np.array([ordinals.setdefault(signature(labels), len(ordinals)) for labels in left.labels], dtype=int)
    right_sig = np.array([ordinals.setdefault(signature(labels), len(ordinals)) for labels in right.labels], dtype=int)
    steps = left.shape[1]
    if expr.op == "or":
        there = _present(left, left_sig, len(ordinals), steps)
        rest = right.masked(~there[right_sig]) if len(right.labels) else right
        return concatenated([left, rest.pruned()], steps).merged(by_first_step=True)
    there = _present(right, right_sig, len(ordinals), steps)
    if not len(left.labels):
        return left
    cells = there[left_sig]
    return left.masked(cells if expr.op == "and" else ~cells).pruned()


def _present(block: Block, signatures: np.ndarray, number: int, steps: int) -> Bools:
    """Which signatures have a sample at which step."""
    there = np.zeros((number, steps), dtype=bool)
    if len(signatures):
        np.logical_or.at(there, signatures, block.present)
    return there
