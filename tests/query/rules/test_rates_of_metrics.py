"""No rule answers rates of a metric, and the refusal says why, and what does."""

from __future__ import annotations

import pytest

from lakerunner.model.compute import Compute
from lakerunner.query.language import QueryOptions, StepPlan
from lakerunner.query.languages import language
from lakerunner.query.rules.rewriter import Rewriter
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.series.times import QueryTimes

RULES = [
    RuleVersion(number, 1, f"r{number}", "metrics", "calls_total", (("job", "job"),), compute, field)
    for number, (compute, field) in enumerate(
        ((Compute.COUNT, ""), (Compute.SUM, "value"), (Compute.MIN, "value"), (Compute.MAX, "value")), 1
    )
]


@pytest.mark.parametrize("function", ["rate", "increase", "delta", "irate", "changes"])
@pytest.mark.parametrize("aggregation", ["sum", "avg", "max"])
def test_rates_are_refused(aggregation: str, function: str) -> None:
    query = f"{aggregation} by (job) ({function}(calls_total[5m]))"
    plan = language("promql").compile(query, QueryTimes(0, 600_000, 60_000), QueryOptions())
    assert isinstance(plan, StepPlan)
    found = Rewriter().consider(plan, RULES)
    assert found is not None and not found.options
    [refusal] = {note.refusal for note in found.refused}
    assert refusal.startswith(f"{aggregation}({function}(…)) does not follow from counts, sums, minima or maxima")
    by_tiers = "first and last sample of every series; rollup tiers keep these and answer it"
    assert refusal.endswith(by_tiers) == (function in ("rate", "increase", "delta"))
