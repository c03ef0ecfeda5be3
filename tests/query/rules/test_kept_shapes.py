"""What rules answer of a query is kept for its next time, and is then what it would be if it were found anew."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from lakerunner.index.rule_catalog import StoredRule
from lakerunner.model.compute import Compute
from lakerunner.query.language import QueryOptions, StepPlan
from lakerunner.query.languages import language
from lakerunner.query.rewriting import LiveRules
from lakerunner.query.rules import rewriter as rewriter_module
from lakerunner.query.rules.rewriter import Considered, Rewriter
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.rules.stored import rule_versions
from lakerunner.query.series.times import QueryTimes

START_MS = 1_700_000_040_000
STEP_MS, STEPS = 120_000, 30
RULES = (
    RuleVersion(1, 1, "lines", "logs", '{app=~".+"}', (("app", "app"), ("level", "level")), Compute.COUNT),
    RuleVersion(2, 1, "failed", "logs", '{app=~".+"} |= "failed"', (("app", "app"),), Compute.COUNT),
    RuleVersion(3, 1, "sizes", "logs", '{app=~".+"}', (("app", "app"),), Compute.HISTOGRAM, "size"),
)
TEXTS = (
    'sum by (level) (rate({app=~".+"}[2m]))',
    'sum(count_over_time({app="a"}[10m] offset 2m)) / sum(count_over_time({app=~".+"}[10m]))',
    'sum by (app) (count_over_time({app=~".+"} |= "failed" [2m])) > 3',
    'quantile_over_time(0.9, {app=~".+"} | unwrap size [2m]) by (app)',
    'sum by (host) (rate({app=~".+"}[2m]))',
)


def plan_of(text: str, start_ms: int, steps: int = STEPS, step_ms: int = STEP_MS, **options: Any) -> StepPlan:
    times = QueryTimes(start_ms, start_ms + (steps - 1) * step_ms, step_ms)
    plan = language("logql").compile(text, times, QueryOptions(**options))
    assert isinstance(plan, StepPlan)
    return plan


def found_by(rewriter: Rewriter, plan: StepPlan, rules: Any = RULES) -> Considered:
    found = rewriter.consider(plan, rules)
    assert found is not None
    return found


def shown(found: Considered) -> Any:
    """All that queries see of what was found."""
    steps = found.raw.times.steps()
    return (
        found.wants,
        found.refused,
        [(leaf, leaf.reading.why) for leaf in found.leaves],
        [
            (option.rule, option.text, option.target, option.windows, option.plan.times, option.plan.options,
             option.plan.payload(steps, 7), option.plan.leaves_at(steps[len(steps) // 2 :]))
            for option in found.options
        ],
        [found.decided({want: [] for want in found.wants})[0].canonical],
    )  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("approximate", [False, True])
def test_what_is_kept_is_what_would_be_found(text: str, approximate: bool) -> None:
    rewriter = Rewriter()
    for by_ms in (0, STEP_MS, -7 * STEP_MS, 86_400_000, 10_000, 60_000, 5_000):
        plan = plan_of(text, START_MS + by_ms, approximate=approximate)
        assert shown(found_by(rewriter, plan)) == shown(found_by(Rewriter(), plan, list(RULES)))
    for steps, step_ms in ((STEPS + 1, STEP_MS), (STEPS, 2 * STEP_MS), (1, STEP_MS), (2, 15_000)):
        plan = plan_of(text, START_MS, steps, step_ms, approximate=approximate)
        assert shown(found_by(rewriter, plan)) == shown(found_by(Rewriter(), plan, list(RULES)))
    plan = plan_of(text, START_MS + STEP_MS, approximate=approximate, max_tier_s=60)
    assert shown(found_by(rewriter, plan)) == shown(found_by(Rewriter(), plan, list(RULES)))


def test_guards_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    refusal = rewriter_module.refusal

    def noted(*given: Any) -> Any:
        asked.append(given)
        return refusal(*given)

    monkeypatch.setattr(rewriter_module, "refusal", noted)
    rewriter = Rewriter()
    found_by(rewriter, plan_of(TEXTS[0], START_MS))
    first = len(asked)
    assert first
    found_by(rewriter, plan_of(TEXTS[0], START_MS + STEP_MS))
    assert len(asked) == first
    # Other rules may have the same definitions, and a list may be another one the next time.
    found_by(rewriter, plan_of(TEXTS[0], START_MS), (*RULES[:2], RULES[2]))
    found_by(rewriter, plan_of(TEXTS[0], START_MS), list(RULES))
    assert len(asked) == 3 * first


class _Index:
    def __init__(self) -> None:
        self.rules: list[StoredRule] = []

    def read(self, _: Any) -> list[StoredRule]:
        return list(self.rules)


def _stored(rule_id: int, match: str) -> StoredRule:
    about = {"match": match, "dimensions": ["app"], "compute": "count"}
    return StoredRule(
        rule_id=rule_id, org_id=uuid.UUID(int=1), signal="logs", name="lines", group_name="g", version=rule_id,
        definition=about, since_version=rule_id, until_version=None, created_by="", created_at=None,
        retired_at=None, retired_reason=None,
    )  # type: ignore[arg-type]  # fmt: skip


def test_rules_stay_the_same_objects_until_they_change() -> None:
    index, now_s = _Index(), [0.0]
    live = LiveRules(index, lambda: now_s[0])  # type: ignore[arg-type]
    index.rules = [_stored(1, '{app="a"}')]
    first = live.of_org(uuid.UUID(int=1))
    now_s[0] += 10
    assert live.of_org(uuid.UUID(int=1)) is first
    assert rule_versions(first) is rule_versions(first)
    index.rules = [_stored(2, '{app="b"}')]
    now_s[0] += 10
    changed = live.of_org(uuid.UUID(int=1))
    assert [each.match for each in rule_versions(changed)] == ['{app="b"}']
    assert [each.match for each in rule_versions(first)] == ['{app="a"}']
