"""What stages count and log of rules, once their samples are visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import Counter

from lakerunner.pipeline.derive.rule_set import Evaluation
from lakerunner.runtime.telemetry import log

_HOLES = Counter("lakerunner_rule_holes", "Stretches of time in which samples of a rule are not exact.", ["signal"])
_OVERFLOWED = Counter("lakerunner_rule_series_overflowed", "Series above the limit of their rule.", ["signal"])


def report_rules(evaluations: Sequence[Evaluation], about: Mapping[str, str]) -> None:
    for each in evaluations:
        for trouble in each.troubles:
            _HOLES.labels(about["signal"]).inc()
            log().warning("rule not exact", rule=trouble.name, reason=trouble.reason, **about)
        for name, series in each.overflowed:
            _OVERFLOWED.labels(about["signal"]).inc(series)
            log().warning("rule overflowed", rule=name, series=series, **about)
