"""Which materialization rules answer an alert in LogQL or TraceQL, so that it can be evaluated when they have samples.

Guards decide, as they do when the alert is evaluated. Coverage is not asked for: where a rule lacks rows, the
evaluation reads raw rows, at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.index.rule_catalog import StoredRule
from lakerunner.model.errors import LakeError
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.rules.rewriter import REWRITER
from lakerunner.query.series.times import QueryTimes
from lakerunner.rules.definitions import PROMQL, TRACEQL, Alert

#: Any time will do whose buckets are whole.
_AT_MS = 1_700_000_000_000


def answering_rules(alert: Alert, width_ms: int, rules: Sequence[StoredRule]) -> frozenset[str]:
    """Names of the rules whose series answer a part of the alert's expression."""
    if alert.language == PROMQL or not rules:
        return frozenset()
    lookback_ms = width_ms if alert.language == TRACEQL else 0
    try:
        times = QueryTimes(_AT_MS, _AT_MS, 0)
        plan = language(alert.language).compile(alert.expr, times, QueryOptions(lookback_ms=lookback_ms))
        considered = REWRITER.consider_stored(plan, rules)
    except LakeError:
        return frozenset()
    return frozenset() if considered is None else frozenset(option.rule for option in considered.options)
