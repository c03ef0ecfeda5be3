"""Rules of an org, compiled together, make the counts and sums that a plain loop over the same rows makes."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from lakerunner.formats.read import read_object
from lakerunner.model.compute import Compute
from lakerunner.model.signals import LOGS, TRACES
from lakerunner.pipeline.derive.evaluate import Derived
from lakerunner.pipeline.derive.rule_set import Evaluation, RuleBudget, RuleEvaluation, RuleSet, RuleVersion
from lakerunner.pipeline.derive.work_time import work_time
from lakerunner.pipeline.repeats import with_repeats
from lakerunner.pipeline.split import parts
from lakerunner.rules.definitions import Materialize
from tests.formats.otlp_samples import trace_batches

START_S = 1_763_000_000
Key = tuple[str, tuple[tuple[str, str], ...], int]


def log_rows(lines: list[dict[str, object]]) -> list[pa.Table]:
    """Tables of log rows as ingest writes them, one per hour."""
    body = "\n".join(json.dumps(line) for line in lines).encode()
    tables = read_object(body, LOGS, "a.json").tables
    return [with_repeats(part[""]) for part in parts(LOGS, tables, (START_S + 600) * 10**9)]


def evaluated(signal: str, rules: list[Materialize], tables: list[pa.Table], slot: int = 3) -> Evaluation:
    versions = tuple(RuleVersion(number, 1, rule) for number, rule in enumerate(rules, 1))
    evaluation = RuleEvaluation(RuleSet(uuid.uuid4(), signal, 1, versions))
    for table in tables:
        evaluation.add(table)
    return evaluation.result(slot, b"k" * 16)


def samples(derived: Derived | None, column: str = "value") -> dict[Key, float]:
    """(metric, labels, bucket) -> value. Samples lie within their bucket, and no two have the same series and time."""
    if derived is None:
        return {}
    labels = {row["tid"]: tuple(sorted(row["labels"])) for row in derived.series.to_pylist()}
    found: dict[Key, float] = {}
    for row in derived.samples.to_pylist():
        time_ms = int(row["timestamp"].timestamp() * 1000)
        assert row["start_timestamp"] is None or row["start_timestamp"] < row["timestamp"]
        key = (row["metric_name"], labels[row["tid"]], (time_ms - 1) // 10_000)
        assert key not in found
        found[key] = row[column]
    return found


def line(at_s: float, service: str, message: str, **attributes: object) -> dict[str, object]:
    time_ns = int(START_S * 10**9 + at_s * 10**9)
    return {"timestamp": time_ns, "service": service, "message": message, **attributes}


COUNTS = [
    Materialize("all_lines", "logs", '{service_name=~".+"}', ("service_name",)),
    Materialize("a_errors", "logs", '{service_name="a"} |= "error"', ("service_name", "region")),
    Materialize("a_slow", "logs", '{service_name="a"} |= "error" | json | status >= 500', ("status",)),
    Materialize("a_json", "logs", '{service_name="a"} |= "error" | json | status < 500', ("status", "region")),
    Materialize("a_parsed", "logs", '{service_name="a"} |= "error" | json', ("status",)),
    Materialize("not_c", "logs", '{service_name=~".+", service_name!="c"} !~ "o.*k"', ()),
    Materialize("absent", "logs", '{service_name="zz"} | json', ("x",)),
    Materialize("size", "logs", '{service_name=~"a|b"}', ("service_name",), Compute.BYTES),
    Materialize("ms", "logs", '{service_name="b"} | logfmt | __error__=""', (), Compute.SUM, "ms"),
    Materialize("ms_min", "logs", '{service_name="b"} | logfmt | __error__=""', (), Compute.MIN, "ms"),
    Materialize("ms_max", "logs", '{service_name="b"} | logfmt | __error__=""', (), Compute.MAX, "ms"),
]


def brute_force(lines: list[dict[str, object]]) -> dict[Key, float]:
    """What the rules above say, in Python."""
    found: defaultdict[Key, list[float]] = defaultdict(list)
    once = {json.dumps(each, sort_keys=True): each for each in lines}.values()
    for each in once:
        service, message = str(each["service"]), str(each["message"])
        bucket = (int(str(each["timestamp"])) - 1) // 10**10
        region = {"region": str(each["region"])} if each.get("region") else {}

        def add(name: str, labels: dict[str, str], value: float = 1.0, bucket: int = bucket) -> None:
            found[name, tuple(sorted(labels.items())), bucket].append(value)

        add("all_lines", {"service_name": service})
        if service != "c" and not re.search("o.*k", message):
            add("not_c", {})
        if service in "ab":
            add("size", {"service_name": service}, len(message))
        if service == "a" and "error" in message:
            add("a_errors", {"service_name": service, **region})
            if message.startswith("{"):
                status = json.loads(message)["status"]
                labels = {"status": str(status)} if status >= 500 else {"status": str(status), **region}
                add("a_slow" if status >= 500 else "a_json", labels)
                add("a_parsed", {"status": str(status)})
        if service == "b" and (number := re.search(r"ms=(\d+)", message)):
            for name in ("ms", "ms_min", "ms_max"):
                add(name, {}, float(number[1]))
    combine = {"ms_min": min, "ms_max": max}
    return {key: float(combine.get(key[0], sum)(values)) for key, values in found.items()}


MESSAGES = st.sampled_from(
    [
        '{"status": 200, "e": "error"}',
        '{"status": 503, "e": "error"}',
        '{"status": 200}',
        *("ok then", "o what k", "error", "ms=0 done", "ms=3 done", "ms=20 done"),
    ]
)
LINES = st.lists(
    st.builds(
        line,
        # Borders of buckets; and of the hour, at 2,800: its last bucket has rows of two segments.
        st.sampled_from([0, 1e-9, 5, 10, 10.000000001, 2_795, 2_800, 2_800.5]),
        st.sampled_from("abc"),
        MESSAGES,
        region=st.sampled_from(["", "eu", "us"]),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(LINES)
def test_rules_compiled_together_equal_a_loop_over_the_rows(lines: list[dict[str, object]]) -> None:
    found = evaluated("logs", COUNTS, log_rows(lines) if lines else [])
    # A query without a filter behind `json` fails on lines that are no JSON; such lines are said.
    broken = {each["message"] for each in lines if each["service"] == "a"} & {"error"}
    assert {each.name for each in found.troubles} == ({"a_parsed"} if broken else set())
    assert samples(found.derived) == brute_force(lines)


def test_a_rule_that_fails_does_not_stop_the_others() -> None:
    rules = [
        Materialize("good", "logs", '{service_name="a"}'),
        Materialize("bad", "logs", '{service_name="a"} | json', (), Compute.SUM, "not a label"),
    ]
    found = evaluated("logs", rules, log_rows([line(1, "a", "x")]))
    assert list(samples(found.derived).values()) == [1.0]
    [trouble] = found.troubles
    assert trouble.rule_id == 2 and "not a label" in trouble.reason
    assert trouble.first_ns == trouble.last_ns == (START_S + 1) * 10**9


def test_series_above_the_limit_go_to_the_overflow_and_no_row_is_lost() -> None:
    lines = [line(at, "a", "x", region=f"r{at % 7}", zone="z") for at in range(9)]
    rule = Materialize("few", "logs", '{service_name="a"}', ("region", "zone"), max_series=3)
    found = evaluated("logs", [rule], log_rows(lines))
    by_region: defaultdict[str, float] = defaultdict(float)
    for (_, labels, _), value in samples(found.derived).items():
        by_region[dict(labels)["region"]] += value
    assert sum(by_region.values()) == 9 and len(by_region) == 4 and by_region["__overflow__"] == 4
    assert found.overflowed == (("few", 4),)
    assert found.troubles[0].reason == "it had more than 3 series"


@pytest.mark.parametrize("value", ["NaN", "+Inf", "many"])
def test_values_that_are_no_numbers_are_said(value: str) -> None:
    rule = Materialize("ms", "logs", '{service_name="a"} | logfmt', (), Compute.SUM, "ms")
    found = evaluated("logs", [rule], log_rows([line(1, "a", f"ms={value}"), line(2, "a", "ms=4")]))
    assert list(samples(found.derived).values()) == [4.0] and len(found.troubles) == 1


def test_dimensions_without_a_value_are_said_unless_every_line_has_the_label() -> None:
    parsed = Materialize("parsed", "logs", '{service_name="a"} | json', ("user",))
    named = Materialize("named", "logs", '{service_name="a"} | json user="user"', ("user",))
    lines = [line(at, "a", text) for at, text in enumerate(('{"user": "x"}', '{"user": ""}', "{}"), 1)]
    found = evaluated("logs", [parsed, named], log_rows(lines))
    assert sorted(samples(found.derived).values()) == [1.0, 1.0, 2.0, 2.0]
    [trouble] = found.troubles
    assert trouble.name == "parsed" and trouble.reason == "some rows have a dimension without a value"
    assert trouble.first_ns == trouble.last_ns == (START_S + 2) * 10**9


def test_histograms_count_every_value_once() -> None:
    values = [0.0, 0.0, 1.0, 1.5, 1000.0, -3.0, 1e-300, 1e300]
    lines = [line(at / 10, "a", f"ms={value!r}") for at, value in enumerate(values, 1)]
    rule = Materialize("ms", "logs", '{service_name="a"} | logfmt', (), Compute.HISTOGRAM, "ms")
    found = evaluated("logs", [rule], log_rows(lines))
    assert found.derived is not None
    [row] = found.derived.samples.to_pylist()
    assert (row["h_count"], row["h_zero_count"]) == (8.0, 3.0)
    assert sum(row["h_positive_buckets"]) == 4.0 and row["h_negative_buckets"] == [1.0]
    assert row["h_sum"] == pytest.approx(sum(values))


def test_rules_over_spans_equal_a_loop_over_them() -> None:
    body = b"".join(batch.SerializeToString() for batch in trace_batches(400, seed=3, per_batch=100))
    [table] = [part[""] for part in parts(TRACES, read_object(body, TRACES, "a.binpb").tables, 0)][:1]
    rules = [
        Materialize("spans", "traces", "{ }", ("resource.service.name", "kind")),
        Materialize("slow", "traces", "{ duration > 1ms && status = error }", ("name",)),
        Materialize("duration", "traces", '{ resource.service.name = "checkout" }', (), Compute.HISTOGRAM, "duration"),
        Materialize("longest", "traces", "{ }", ("status",), Compute.MAX, "duration"),
    ]
    found = evaluated("traces", rules, [table])
    assert not found.troubles and found.derived is not None
    rows = table.select(["service_name", "kind", "name", "status_code", "duration_ns", "start_timestamp"]).to_pylist()
    expected: defaultdict[Key, float] = defaultdict(float)
    times = table.column("start_timestamp").cast(pa.int64()).to_numpy()
    for row, bucket in zip(rows, ((times - 1) // 10**10).tolist(), strict=True):
        kind, status = row["kind"] or "unspecified", row["status_code"] or "unset"
        expected["spans", (("kind", kind), ("service_name", row["service_name"])), bucket] += 1
        if row["duration_ns"] > 10**6 and status == "error":
            expected["slow", (("name", row["name"]),), bucket] += 1
        key = ("longest", (("status", status),), bucket)
        expected[key] = max(expected.get(key, -np.inf), row["duration_ns"] / 1e9)
    counted = {key: value for key, value in samples(found.derived).items() if key[0] != "duration"}
    assert counted == pytest.approx(dict(expected))
    in_checkout = sum(row["service_name"] == "checkout" for row in rows)
    histograms = samples(found.derived, "h_count")
    assert sum(value for key, value in histograms.items() if key[0] == "duration") == in_checkout > 0


def test_expensive_rules_of_one_org_are_cut_off_and_cost_others_nothing() -> None:
    tables = log_rows([line(at / 1000, "a", f"error {at} " + "ab" * 400) for at in range(3_000)])
    cheap = Materialize("cheap", "logs", '{service_name="a"} |= "error"')
    # Each must look at every line from every place in it.
    slow = [
        Materialize(f"r{n}", "logs", f'{{service_name="a"}} |~ "(a.?b.?){{{30 + n % 60}}}x{n}"') for n in range(500)
    ]
    budget, unlimited = RuleBudget(us_per_row=20.0, least_s=0.05), RuleBudget(least_s=600.0)
    used_s = []
    for rules in ([cheap], [cheap, *slow]):
        versions = tuple(RuleVersion(number, 1, rule) for number, rule in enumerate(rules, 1))
        began_s = time.thread_time()
        # Compiled apart, by a row that none selects: on busy cores that alone takes a budget of so few rows.
        RuleEvaluation(RuleSet(uuid.uuid4(), "logs", 1, versions, unlimited)).add(log_rows([line(0, "b", "x")])[0])
        evaluation = RuleEvaluation(RuleSet(uuid.uuid4(), "logs", 1, versions, budget))
        for table in tables:
            evaluation.add(table)
        found = evaluation.result(1, b"k" * 16)
        used_s.append(time.thread_time() - began_s)
        assert samples(found.derived) and {name for name, *_ in samples(found.derived)} == {"cheap"}
    cut = {each.name for each in found.troubles}
    assert len(cut) > 100 and all("derive.rule_us_per_row" in each.reason for each in found.troubles)
    # Compiling 500 rules and one check beyond the budget are what they may take more.
    assert used_s[1] < used_s[0] + 0.75 + 5 * (budget.least_s + 3_000 * 20e-6)


def test_compiling_kernels_is_not_time_that_rules_take() -> None:
    def kernel(numbers: np.ndarray) -> float:
        total = 0.0
        for number in numbers:
            total += number
        return total

    compiled = njit(kernel)
    before_s, thread_s = work_time(), time.thread_time()
    compiled(np.zeros(4))
    compile_s = time.thread_time() - thread_s
    assert work_time() - before_s < compile_s / 2
    worked_s, thread_s = work_time(), time.thread_time()
    np.sort(np.random.default_rng(1).random(2_000_000))
    assert work_time() - worked_s > (time.thread_time() - thread_s) / 2
