"""Quantiles of durations that a rule answers are those of the spans that TraceQL counts, within the stated error."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from lakerunner.model.compute import Compute
from lakerunner.model.signals import TRACES
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.rules.rewriter import Considered, Rewriter
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.rules.ruled_plan import RuledSteps
from lakerunner.query.run import run
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.traceql.labels import encoded_label
from lakerunner.query.traceql.values import FLOAT
from tests.query.rules.rewrites.records import START_NS
from tests.query.rules.rewrites.small_lake import SmallLake
from tests.query.rules.rewrites.trial import QUANTILE_ERROR, cells

RULE = RuleVersion(1, 1, "took", "traces", "{ }", (("name", "name"),), Compute.HISTOGRAM, "duration")
AT_MS = START_NS // 1_000_000


def request(durations: dict[str, list[int]]) -> bytes:
    """Spans that begin within a minute."""
    rng = random.Random(3)
    spans = [
        {
            "traceId": f"{rng.randrange(1, 1 << 64):032x}",
            "spanId": f"{rng.randrange(1, 1 << 60):016x}",
            "name": name,
            "kind": 1,
            "startTimeUnixNano": str(START_NS + 1 + at * 10_000_000),
            "endTimeUnixNano": str(START_NS + 1 + at * 10_000_000 + took_ns),
        }
        for name, all_of in durations.items()
        for at, took_ns in enumerate(all_of)
    ]
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}).encode()


def considered(text: str, *, approximate: bool = True) -> Considered:
    times = QueryTimes(AT_MS, AT_MS + 120_000, 60_000)
    plan = language("traceql").compile(text, times, QueryOptions(approximate=approximate))
    found = Rewriter().consider(plan, [RULE])
    assert found is not None
    return found


def test_durations_of_a_rank(tmp_path: Path) -> None:
    rng = random.Random(5)
    durations = {
        "spread": [int(rng.lognormvariate(14, 4)) for _ in range(150)],
        "tiny": [rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(100)],
        "none": [0, 1, 1],
        "one": [7_000_000],
    }
    lake = SmallLake(tmp_path)
    try:
        lake.ingest(TRACES, [request(durations)], [RULE])
        wanted = considered("{ } | quantile_over_time(duration, 0, 0.5, 0.9, 1) by (name)")
        ruled, notes = wanted.decided(dict.fromkeys(wanted.wants, ()))
        assert isinstance(ruled, RuledSteps) and ruled.approximate, notes
        source = lake.source()
        source.prepare(ruled.leaves)
        result = run(ruled, source, lambda: None)
        assert any("within 9.1%" in warning for warning in result.warnings)
        raw = lake.source()
        raw.prepare(wanted.raw.leaves)
        found, answer = cells(result), cells(run(wanted.raw, raw, lambda: None))
        assert found.keys() == answer.keys() and len({labels for labels, _ in found}) == 12
        for (labels, time_ms), value in found.items():
            name = next(each for each in durations if f'{each}"' in labels)
            quantile = next(each for each in (0.0, 0.5, 0.9, 1.0) if f'p="{encoded_label(FLOAT, each)}"' in labels)
            counted = sorted(each / 1e9 for each in durations[name] if each >= 2)
            if time_ms != AT_MS + 60_000:
                assert value == answer[labels, time_ms] == 0
                continue
            rank = max(math.ceil(quantile * len(counted)), 1)
            assert counted[rank - 1] / QUANTILE_ERROR <= value <= counted[rank - 1] * QUANTILE_ERROR, labels
    finally:
        lake.close()


@pytest.mark.parametrize(
    ("text", "approximate", "sentence"),
    [
        ("{ } | quantile_over_time(duration, 0.9)", False, "does not allow it with approximate=1"),
        ("{ } | quantile_over_time(span.size, 0.9)", True, "leave out numbers below two"),
        ("{ } | histogram_over_time(duration)", True, "does not follow"),
    ],
)
def test_others_are_refused_by_name(text: str, approximate: bool, sentence: str) -> None:
    [note] = considered(text, approximate=approximate).refused
    assert sentence in note.refusal
