"""One trial: random rules and data, and queries whose rewritten answers must equal the raw ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from lakerunner.model.distinct import STANDARD_ERROR
from lakerunner.model.errors import LakeError
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.query.language import Plan, QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.logql.language import LogSteps
from lakerunner.query.rules.rewriter import Rewriter
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.rules.ruled_plan import RuledSteps
from lakerunner.query.run import run
from lakerunner.query.series.results import MatrixResult, QueryResult, VectorResult
from lakerunner.query.series.times import QueryTimes
from tests.query.rules.rewrites import log_cases, records, sample_cases, samples, span_cases, spans
from tests.query.rules.rewrites.cases import Query
from tests.query.rules.rewrites.records import SPAN_S, START_NS
from tests.query.rules.rewrites.small_lake import SmallLake

QUERIES_PER_LAKE = 40
START_MS = START_NS // 1_000_000
#: Sums of floats may be added up in another order.
TOLERANCE = 1e-12
#: One bucket of eight per power of two.
QUANTILE_ERROR = 2 ** (1 / 8)
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


@dataclass(frozen=True, slots=True)
class Subject:
    """A signal, and what is made up for it."""

    signal: Signal
    rule: Callable[[random.Random, int], RuleVersion]
    query: Callable[[random.Random, list[RuleVersion]], Query]
    batch: Callable[..., list[bytes]]


SUBJECTS = (
    Subject(LOGS, log_cases.rule, log_cases.query, records.batch),
    Subject(TRACES, span_cases.rule, span_cases.query, spans.batch),
    Subject(METRICS, sample_cases.rule, sample_cases.query, samples.batch),
)
#: Which subject the lakes of successive seeds have.
_TURNS = (LOGS, LOGS, TRACES, METRICS)


def trials(seed: int, lake: SmallLake, rewriter: Rewriter, queries: int = QUERIES_PER_LAKE) -> Iterator[Outcome]:
    for rules, query in asked(seed, lake, queries):
        yield _trial(lake, rewriter, rules, query)


def asked(seed: int, lake: SmallLake, queries: int = QUERIES_PER_LAKE) -> Iterator[tuple[list[RuleVersion], Query]]:
    """Fill the lake from a seed, then ask. Half of the lakes are of logs."""
    rng = random.Random(seed)
    subject = next(each for each in SUBJECTS if each.signal is _TURNS[seed % len(_TURNS)])
    rules = [subject.rule(rng, number) for number in range(1, 1 + rng.randrange(1, 5))]
    fill(rng, lake, subject, rules)
    for _ in range(queries):
        yield rules, subject.query(rng, rules)


def fill(rng: random.Random, lake: SmallLake, subject: Subject, rules: list[RuleVersion]) -> None:
    """Some items. In some lakes, later ones bring late rows that not all rules have seen."""
    lake.forget()
    complete = rng.random() < 0.7
    # Where segments of spans or samples overlap, no rule answers: a row may lie in both.
    apart = subject.signal is not LOGS and rng.random() < 0.6
    for number in range(rng.randrange(1, 4)):
        known, begin_s, end_s = rules, 0, SPAN_S
        if number and not complete:
            known = rng.sample(rules, rng.randrange(0, len(rules)))
            begin_s = rng.choice((0, 60, 120, 180))
            end_s = begin_s + rng.choice((10, 60))
        if apart:
            begin_s, end_s = number * 80, number * 80 + 70
        requests = subject.batch(rng, 250, begin_s, end_s)
        lake.ingest(subject.signal, requests, known)
        if number == 0 and rng.random() < 0.3 and not apart:
            # The same objects in another item: rows that are stored twice.
            lake.ingest(subject.signal, requests, known)
    if rng.random() < 0.3:
        lake.compact()


def _trial(lake: SmallLake, rewriter: Rewriter, rules: list[RuleVersion], query: Query) -> Outcome:
    try:
        plan = plan_of(query)
    except LakeError as error:
        return Outcome(str(query), "invalid", refusals=(str(error),))
    ruled, refusals = rewritten(lake, rewriter, rules, plan)
    if ruled is None:
        return Outcome(str(query), "refused", refusals=refusals)
    kind = "split" if ruled.splits else "rewritten"
    compared = difference
    if span_cases.QUANTILE in query.text and query.language == "traceql":
        compared = coarse_difference
    elif ruled.approximate:
        compared = sketch_difference
    return Outcome(str(query), kind, compared(answer(lake, plan), answer(lake, ruled)))


def plan_of(query: Query) -> Plan:
    times = QueryTimes(START_MS + query.start_s * 1000, START_MS + query.end_s * 1000, query.step_s * 1000)
    return language(query.language).compile(
        query.text, times, QueryOptions(lookback_ms=60_000, approximate=query.approximate)
    )


def rewritten(
    lake: SmallLake, rewriter: Rewriter, rules: list[RuleVersion], plan: Plan, *, covered: bool = False
) -> tuple[RuledSteps | None, tuple[str, ...]]:
    """The plan that rules answer, or why they do not. `covered` believes that every rule has all rows."""
    versions = tuple(rules)
    if isinstance(plan, LogSteps):
        # As dashboards do, it was asked before at other times: what rules answer is kept, and moved to its own.
        by_ms = 7 * plan.times.step_ms or 10_000
        earlier = replace(plan.times, start_ms=plan.times.start_ms - by_ms, end_ms=plan.times.end_ms - by_ms)
        rewriter.consider(language(plan.language).compile(plan.text, earlier, plan.options), versions)  # type: ignore[arg-type]
    considered = rewriter.consider(plan, versions)
    if considered is None:
        return None, ()
    gaps = {want: [] if covered else lake.gaps(want) for want in considered.wants}
    segments = [] if covered else [stored.segment for stored in lake.raw]
    ruled, notes = considered.decided(gaps, segments)
    if isinstance(ruled, RuledSteps):
        return ruled, ()
    return None, tuple(f"{note.rule}: {note.refusal}" for note in notes)


def answer(lake: SmallLake, plan: Plan) -> Cells | str:
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


def difference(raw: Cells | str, made: Cells | str) -> str:
    if isinstance(raw, str) or isinstance(made, str):
        return "" if isinstance(raw, str) and isinstance(made, str) else f"raw {_short(raw)}, by rules {_short(made)}"
    if raw.keys() != made.keys():
        return f"only raw {sorted(raw.keys() - made.keys())[:3]}, only by rules {sorted(made.keys() - raw.keys())[:3]}"
    for cell, value in raw.items():
        if not _equal(value, made[cell]):
            return f"at {cell} raw {value!r}, by rules {made[cell]!r}"
    return ""


def coarse_difference(raw: Cells | str, made: Cells | str) -> str:
    """As far as both can be compared: a raw quantile lies anywhere below the power of two that ends its bucket."""
    if isinstance(raw, str) or isinstance(made, str) or raw.keys() != made.keys():
        return difference(raw, made)
    for cell, value in raw.items():
        if (value == 0) != (made[cell] == 0) or made[cell] < value / 2 / QUANTILE_ERROR:
            return f"at {cell} raw {value!r}, by rules {made[cell]!r}"
    return ""


def sketch_difference(raw: Cells | str, made: Cells | str) -> str:
    """Counts of different values by a HyperLogLog: five standard errors, which is nothing for small counts."""
    if isinstance(raw, str) or isinstance(made, str) or raw.keys() != made.keys():
        return difference(raw, made)
    for cell, value in raw.items():
        if abs(value - made[cell]) > max(5 * STANDARD_ERROR * abs(value), TOLERANCE):
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
