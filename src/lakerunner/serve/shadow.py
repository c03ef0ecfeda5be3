"""Checks answers of rules: some are computed again from raw rows, in the background, and compared.

A difference is a bug of ours or damage to the lake. It is logged and counted, and the rules are retired: from then on
their queries read raw rows.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from lakerunner.index.database import Database
from lakerunner.index.rule_catalog import retire_rule
from lakerunner.model.errors import LakeError, LimitHit, Unavailable
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.language import Plan
from lakerunner.query.rewriting import LiveRules, Ruled
from lakerunner.query.run import run
from lakerunner.query.series.results import MatrixResult, QueryResult, VectorResult
from lakerunner.runtime.telemetry import log
from lakerunner.serve.metrics import API_SHADOWS

#: Sums of floats are added up in another order. Relative to the largest value of the answer.
_TOLERANCE = 1e-9
_EXACT = float(1 << 53)
REASON = "an answer of the rule differed from the raw one"

Cells = dict[tuple[str, int], float]


class ShadowCheck:
    """Compares a share of the answers of rules with raw ones, one at a time. While one runs, others are not checked."""

    def __init__(
        self, share: float, database: Database, rules: LiveRules, draw: Callable[[], float] = random.random
    ) -> None:
        self._share = share
        self._database = database
        self._rules = rules
        self._draw = draw
        self._busy = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="shadow")

    def consider(self, plan: Plan, result: QueryResult, source: LakeQuery, timeout_s: float) -> None:
        """Check the answer, if it is one of the share, complete, and not one that may differ as the query allows."""
        if self._draw() >= self._share or not isinstance(plan, Ruled) or not source.stats.complete:
            return
        if plan.approximate:
            return
        if not self._busy.acquire(blocking=False):
            API_SHADOWS.labels("skipped").inc()
            return
        try:
            self._pool.submit(self._check, plan, result, source, timeout_s)
        except RuntimeError:
            # The server stops.
            self._busy.release()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _check(self, plan: Ruled, result: QueryResult, source: LakeQuery, timeout_s: float) -> None:
        try:
            outcome = self._compared(plan, result, source, timeout_s)
        except Exception:  # noqa: BLE001  (nobody waits for this thread)
            log().exception("shadow check failed", org=str(source.org_id))
            outcome = "failed"
        finally:
            self._busy.release()
        API_SHADOWS.labels(outcome).inc()

    def _compared(self, plan: Ruled, result: QueryResult, source: LakeQuery, timeout_s: float) -> str:
        deadline_s = time.monotonic() + timeout_s

        def check() -> None:
            if time.monotonic() > deadline_s:
                raise LimitHit("cannot finish the shadow check: it takes too long")

        again = source.again(timeout_s, check)
        try:
            raw = run(plan.raw, again, check)
        except (LimitHit, Unavailable):
            return "not comparable"
        except LakeError as error:
            return self._alarm(plan, source, f"without rules, the query fails: {error}")
        if not again.stats.complete:
            return "not comparable"
        difference = difference_of(raw, result)
        return self._alarm(plan, source, difference) if difference else "equal"

    def _alarm(self, plan: Ruled, source: LakeQuery, difference: str) -> str:
        log().error(
            "an answer of rules differs from the raw one; the rules are retired",
            org=str(source.org_id),
            query=plan.raw.canonical,
            difference=difference,
            rules=sorted(plan.rule_ids),
        )
        with self._database.transaction() as tx:
            for rule_id in sorted(plan.rule_ids):
                retire_rule(tx, source.org_id, rule_id, REASON)
        self._rules.forget(source.org_id)
        return "different"


def difference_of(raw: QueryResult, ruled: QueryResult) -> str:
    """Why two answers are not the same; empty if they are."""
    left, right = _cells(raw), _cells(ruled)
    if left.keys() != right.keys():
        only = next(iter(left.keys() ^ right.keys()))
        return f"only {'raw rows' if only in left else 'the rules'} have {only[0]} at {only[1]}"
    scale = max((abs(value) for value in left.values() if np.isfinite(value)), default=0.0)
    for cell, value in left.items():
        if not _same(value, right[cell], scale):
            return f"{cell[0]} at {cell[1]} is {value!r} of raw rows, and {right[cell]!r} of the rules"
    return ""


def _cells(result: QueryResult) -> Cells:
    value = result.value
    if isinstance(value, VectorResult):
        pairs = zip(value.labels, value.values.tolist(), strict=True)
        return {(str(labels), value.time_ms): float(number) for labels, number in pairs}
    assert isinstance(value, MatrixResult)
    return {
        (str(series.labels), time_ms): float(number)
        for series in value
        for time_ms, number in zip(series.timestamps_ms.tolist(), series.values.tolist(), strict=True)
    }


def _same(left: float, right: float, scale: float) -> bool:
    if left == right or (np.isnan(left) and np.isnan(right)):
        return True
    if left.is_integer() and right.is_integer() and abs(left) < _EXACT:
        return False
    return bool(abs(left - right) <= _TOLERANCE * scale)
