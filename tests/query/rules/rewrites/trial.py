"""One trial: random rules and data, and queries whose rewritten answers must equal the raw ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lakerunner.model.errors import LakeError
from lakerunner.model.signals import LOGS
from lakerunner.query.language import Plan, QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.rules.rewriter import Rewriter
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.rules.ruled_plan import RuledSteps
from lakerunner.query.run import run
from lakerunner.query.series.results import MatrixResult, QueryResult, VectorResult
from lakerunner.query.series.times import QueryTimes
from tests.query.rules.rewrites import log_cases
from tests.query.rules.rewrites.records import START_NS, batch
from tests.query.rules.rewrites.small_lake import SmallLake

QUERIES_PER_LAKE = 40
START_MS = START_NS // 1_000_000
#: Sums of floats may be added up in another order.
TOLERANCE = 1e-12
Cells = dict[tuple[str, int], float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one query."""

    text: str
    kind: str
    #: Why the answers differ; empty if they do not.
    difference: str = ""
    #: Where the query was not rewritten: why not.
    refusals: tuple[str, ...] = ()


def trials(seed: int, lake: SmallLake, rewriter: Rewriter, queries: int = QUERIES_PER_LAKE) -> Iterator[Outcome]:
    """Fill the lake from a seed, then ask."""
    rng = random.Random(seed)
    rules = [log_cases.rule(rng, number) for number in range(1, 1 + rng.randrange(1, 5))]
    fill(rng, lake, rules)
    for _ in range(queries):
        query = log_cases.query(rng, rules)
        yield _trial(lake, rewriter, rules, query)


def fill(rng: random.Random, lake: SmallLake, rules: list[RuleVersion]) -> None:
    """Some items, of which in some lakes not all were evaluated with all rules; the last ones bring late rows."""
    lake.forget()
    complete = rng.random() < 0.6
    items = rng.randrange(1, 4)
    for number in range(items):
        known = rules if complete or rng.random() < 0.5 else rng.sample(rules, rng.randrange(0, len(rules)))
        begin_s = 0 if complete else rng.choice((0, 0, 60, 120))
        end_s = 240 if complete else rng.choice((240, begin_s + 60))
        requests = batch(rng, 60, begin_s, end_s)
        lake.ingest(LOGS, requests, known)
        if number == 0 and rng.random() < 0.3:
            # The same objects in another item: rows that are stored twice.
            lake.ingest(LOGS, requests, known)


def _trial(lake: SmallLake, rewriter: Rewriter, rules: list[RuleVersion], query: log_cases.Query) -> Outcome:
    start_ms, step_ms = START_MS + round(query.start_s * 1000), round(query.step_s * 1000)
    times = QueryTimes(start_ms, START_MS + query.end_s * 1000, step_ms)
    shown = f"{query.text} from {query.start_s} to {query.end_s} by {query.step_s}"
    try:
        plan = language("logql").compile(query.text, times, QueryOptions())
    except LakeError as error:
        return Outcome(shown, "invalid", refusals=(str(error),))
    considered = rewriter.consider(plan, rules)
    if considered is None:
        return Outcome(shown, "no part")
    ruled, notes = considered.decided({want: lake.gaps(want) for want in considered.wants})
    if not isinstance(ruled, RuledSteps):
        return Outcome(shown, "refused", refusals=tuple(f"{note.rule}: {note.refusal}" for note in notes))
    kind = "split" if any(part.gaps for part in ruled.parts) else "rewritten"
    raw, made = _answer(lake, plan), _answer(lake, ruled)
    return Outcome(shown, kind, _difference(raw, made))


def _answer(lake: SmallLake, plan: Plan) -> Cells | str:
    source = lake.source()
    source.prepare(plan.leaves)
    try:
        result = run(plan, source, lambda: None)
    except LakeError as error:
        return f"{type(error).__name__}: {error}"
    assert source.stats.complete
    return cells(result)


def cells(result: QueryResult) -> Cells:
    """The values of an answer by labels and time."""
    value = result.value
    if isinstance(value, VectorResult):
        return {(str(labels), 0): float(number) for labels, number in zip(value.labels, value.values, strict=True)}
    assert isinstance(value, MatrixResult)
    return {
        (str(series.labels), int(time_ms)): float(number)
        for series in value
        for time_ms, number in zip(series.timestamps_ms, series.values, strict=True)
    }


def _difference(raw: Cells | str, made: Cells | str) -> str:
    if isinstance(raw, str) or isinstance(made, str):
        return "" if isinstance(raw, str) and isinstance(made, str) else f"raw {_short(raw)}, by rules {_short(made)}"
    if raw.keys() != made.keys():
        return f"only raw {sorted(raw.keys() - made.keys())[:3]}, only by rules {sorted(made.keys() - raw.keys())[:3]}"
    for cell, value in raw.items():
        if not _equal(value, made[cell]):
            return f"at {cell} raw {value!r}, by rules {made[cell]!r}"
    return ""


def _short(answer: Cells | str) -> str:
    return answer if isinstance(answer, str) else f"{len(answer)} values"


def _equal(left: float, right: float) -> bool:
    if left == right or (np.isnan(left) and np.isnan(right)):
        return True
    if left.is_integer() and right.is_integer():
        return False
    # Values around 500 that cancel each other keep an error of that size.
    return bool(abs(left - right) <= TOLERANCE * max(abs(left), abs(right), 500.0))


def tally(outcomes: Iterator[Outcome]) -> Counter[str]:
    return Counter(outcome.kind for outcome in outcomes)
