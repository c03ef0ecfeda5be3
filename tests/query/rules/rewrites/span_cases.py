"""Random materialization rules over spans, and queries that they may answer, nearly answer, or do not."""

from __future__ import annotations

import random

from lakerunner.model.compute import Compute
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.rules.spans import label_of
from tests.query.rules.rewrites.cases import Query, with_steps

FILTERS = (
    "",
    "",
    "status = error",
    "kind = server",
    'resource.service.name = "api"',
    'resource.service.name =~ "api|cart"',
    'resource.service.name != "cart"',
    'name =~ "GET.*"',
    "span.http.status = 200",
    "span.size > 10",
    "duration > 1s",
    'status = error && resource.service.name =~ "api.*"',
    'kind != internal && (status = ok || name = "ping")',
)
FURTHER = (
    'resource.service.name = "api"',
    'resource.service.name = ""',
    'resource.service.name =~ "api-test|cart"',
    'name = "ping"',
    'name != ""',
    "status = error",
    "status != unset",
    "kind = client",
    'name =~ "p.*"',
    "span.http.status = 500",
    "duration > 500ms",
    'kind != server && name =~ "GET /|query"',
)
DIMENSIONS = ("resource.service.name", "name", "status", "kind", "span.http.status")
FIELDS = ("duration", "span.size")
QUANTILE = "quantile_over_time"


def rule(rng: random.Random, number: int) -> RuleVersion:
    dimensions = rng.sample(DIMENSIONS[:4], rng.randrange(0, 5))
    if rng.random() < 0.15:
        dimensions.append(DIMENSIONS[4])
    compute = rng.choice((Compute.COUNT, Compute.COUNT, Compute.SUM, Compute.MIN, Compute.MAX, Compute.HISTOGRAM))
    field = rng.choice(FIELDS) if compute is not Compute.COUNT else ""
    match = f"{{ {rng.choice(FILTERS)} }}"
    pairs = tuple((name, label_of(name)) for name in dimensions)
    return RuleVersion(number, 1, f"rule_{number}", "traces", match, pairs, compute, field)


def query(rng: random.Random, rules: list[RuleVersion]) -> Query:
    part = _part(rng, rng.choice(rules))
    if QUANTILE in part:
        # Raw quantiles and those of rules are both approximate, so nothing is calculated with them here.
        return with_steps(rng, "traceql", part, approximate=rng.random() < 0.9)
    roll = rng.random()
    if roll < 0.15:
        part = f"({part}) {rng.choice(('/', '+', '-', '*'))} ({_part(rng, rng.choice(rules), quantiles=False)})"
    elif roll < 0.25:
        part = f"{part} | {rng.choice(('topk(2)', 'bottomk(1)'))}"
    elif roll < 0.3:
        part = f"{part} > 1"
    return with_steps(rng, "traceql", part)


def _part(rng: random.Random, rule: RuleVersion, *, quantiles: bool = True) -> str:
    odd = rng.choice(("filter", "by", "compute", "field", "function")) if rng.random() < 0.3 else ""
    own = rng.choice(FILTERS) if odd == "filter" else rule.match.strip("{} ")
    conditions = [own] if own else []
    if rng.random() < 0.4:
        conditions.append(rng.choice(FURTHER))
    rng.shuffle(conditions)
    joined = " && ".join(f"({each})" if "||" in each else each for each in conditions)
    kept = [name for name, _ in rule.dimensions]
    by = rng.sample(kept, rng.randrange(0, len(kept) + 1))
    if odd == "by":
        by.append(rng.choice(DIMENSIONS))
    grouping = f" by ({', '.join(dict.fromkeys(by))})" if by else ""
    compute = rng.choice((Compute.COUNT, Compute.SUM, Compute.MIN)) if odd == "compute" else rule.compute
    if compute is Compute.COUNT:
        function = rng.choice(("rate()", "count_over_time()"))
    else:
        field = rng.choice(FIELDS) if odd == "field" else rule.field or "duration"
        name = rng.choice(("avg", "sum")) if odd == "function" or compute is Compute.HISTOGRAM else str(compute)
        function = f"{name}_over_time({field})"
        if quantiles and compute is Compute.HISTOGRAM and rng.random() < 0.5:
            function = f"{QUANTILE}({field}, {rng.choice(('0.5', '0.99', '0.25, 0.9'))})"
    return f"{{ {joined} }} | {function}{grouping}"
