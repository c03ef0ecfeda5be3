"""Random materialization rules over metrics, and queries that they may answer, nearly answer, or do not."""

from __future__ import annotations

import random

from lakerunner.model.compute import Compute
from lakerunner.query.rules.rule import RuleVersion
from tests.query.rules.rewrites.cases import Query, with_steps

SELECTORS = (
    "load",
    "load",
    "queue",
    'load{job="api"}',
    'load{job=~"api|cart"}',
    'load{job!="cart"}',
    'load{code="500", route!=""}',
    'load{route=~"/.*"}',
)
DIMENSIONS = ("job", "route", "code", "pod")
VALUES = {"job": ("api", "cart", ""), "route": ("/a", "/b", ""), "code": ("200", "500"), "pod": ("p1", "p2", "p3")}


def rule(rng: random.Random, number: int) -> RuleVersion:
    dimensions = rng.sample(DIMENSIONS[:3], rng.randrange(0, 4))
    compute = rng.choice((Compute.COUNT, Compute.SUM, Compute.SUM, Compute.MIN, Compute.MAX))
    field = "" if compute is Compute.COUNT else "value"
    pairs = tuple((name, name) for name in dimensions)
    return RuleVersion(number, 1, f"rule_{number}", "metrics", rng.choice(SELECTORS), pairs, compute, field)


def query(rng: random.Random, rules: list[RuleVersion]) -> Query:
    part = _part(rng, rng.choice(rules))
    roll = rng.random()
    if roll < 0.15:
        part = f"{part} {rng.choice(('/', '+', '-', '>', 'or', 'unless'))} {_part(rng, rng.choice(rules))}"
    elif roll < 0.3:
        forms = ("topk(2, {})", "max({})", "abs({}) > 2", "-{}", "clamp_max({}, 5)", "avg_over_time({}[1m:10s])")
        part = rng.choice(forms).format(part)
    elif roll < 0.35:
        part = f"{part} / on () group_left () sum(count_over_time(load[1m]))"
    return with_steps(rng, "promql", part)


def _part(rng: random.Random, rule: RuleVersion) -> str:
    odd = rng.choice(("selector", "by", "without", "width", "function", "outer")) if rng.random() < 0.35 else ""
    selector = rng.choice(SELECTORS) if odd == "selector" else rule.match
    kept = [name for name, _ in rule.dimensions]
    if rng.random() < 0.4:
        name = rng.choice(kept) if kept and rng.random() < 0.9 else rng.choice(DIMENSIONS)
        further = f'{name}{rng.choice(("=", "!="))}"{rng.choice(VALUES[name])}"'
        selector = f"{selector[:-1]}, {further}}}" if selector.endswith("}") else f"{selector}{{{further}}}"
    by = rng.sample(kept, rng.randrange(0, len(kept) + 1))
    if odd == "by":
        by.append(rng.choice(DIMENSIONS))
    grouping = f"by ({', '.join(dict.fromkeys(by))})"
    if odd == "without":
        grouping = f"without ({rng.choice(DIMENSIONS)})"
    width = rng.choice(("15s", "1m5s") if odd == "width" else ("10s", "30s", "1m", "2m"))
    outer = "sum" if rule.compute in (Compute.COUNT, Compute.SUM) else str(rule.compute)
    if odd == "outer":
        outer = rng.choice(("avg", "max", "count"))
    function = f"{rule.compute}_over_time"
    if odd == "function":
        function = rng.choice(("rate", "avg_over_time", "last_over_time", "sum_over_time", "max_over_time"))
    offset = rng.choice(("", "", "", " offset 30s", " offset -20s", " offset 5s"))
    return f"{outer} {grouping} ({function}({selector}[{width}]{offset}))"
