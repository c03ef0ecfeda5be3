"""Ingests the same OTLP log records with 0, 10, 50 and 200 rules, side by side, and backfills 50 rules.

Rules are spread over the services of the data and one absent one; half of them have a line filter, a quarter parse.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.otlp import SERVICES, logs
from bench.served.report import Figure, Report
from bench.traces.lake import config_of

from lakerunner.model.compute import Compute
from lakerunner.model.raw_object import CONTENT_VERSION, RawObject, content_hash
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.backfill.task import BackfillTask
from lakerunner.pipeline.backfill.task import run_task as run_backfill
from lakerunner.pipeline.derive.rule_set import RuleSet, RuleVersion
from lakerunner.pipeline.derive.spans import DeriveOptions
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.rules.definitions import Materialize
from lakerunner.store.open import open_store

_figure = partial(Figure, "materialization")
#: The share of ingest without rules that ingest with so many may take.
TARGETS = {10: None, 50: 1.2, 200: 1.6}


def rules(count: int) -> tuple[RuleVersion, ...]:
    services = (*SERVICES, "absent")
    found = []
    for number in range(count):
        service = services[number % len(services)]
        selector = f'{{service_name="{service}"}}'
        kind = number // len(services) % 4
        match kind:
            case 0:
                rule = Materialize(f"r{number}", "logs", selector, ("service_name", "detected_level"))
            case 1:
                rule = Materialize(f"r{number}", "logs", f'{selector} |= "u-{number} "', ("service_name",))
            case 2:
                rule = Materialize(f"r{number}", "logs", f'{selector} |~ "answered (404|500)"', ("detected_level",))
            case _:
                match = f'{selector} | pattern "<_> <route> answered <status> for <_> in <ms> ms" | status >= 500'
                rule = Materialize(f"r{number}", "logs", match, ("route",), Compute.MAX, "ms")
        found.append(RuleVersion(number + 1, 1, rule, 1))
    return tuple(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="materialization", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, and fewer rounds")
    parser.add_argument("--records", type=int, help="records per item, a multiple of 20,000 (default 400,000)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each number of rules, in turn; the least counts")
    options = parser.parse_args()
    records, rounds = (40_000, 3) if options.quick else (options.records or 400_000, options.rounds)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as folder:
        _ingest(Path(folder), records, rounds, report)
    report.conclude("CPU of one process, side by side")
    return 0


def _task(folder: Path, records: int) -> IngestTask:
    config = config_of(folder)
    store = open_store(config)
    objects = []
    for number in range(max(1, records // 20_000)):
        body = logs(number, 20_000)
        key = f"otel-raw/default/{uuid.uuid4()}.binpb"
        store.put(key, body)
        version = CONTENT_VERSION + content_hash(body).hexdigest()
        objects.append(RawObject(uuid.UUID(int=1), "bench", LOGS.name, config.url, key, version, len(body)))
    nobody = uuid.UUID(int=1)
    return IngestTask(nobody, nobody, "bench", LOGS.name, tuple(objects), {config.url: config}, config)


def _ingest(folder: Path, records: int, rounds: int, report: Report) -> None:
    task = _task(folder, records)
    sets = {count: RuleSet(task.org_id, LOGS.name, 1, rules(count)) for count in (0, 10, 50, 200)}
    spent: dict[int, list[float]] = {count: [] for count in sets}
    segments: list[Segment] = []
    # The first round compiles kernels and rules.
    for round_ in range(rounds + 1):
        for count, rule_set in sets.items():
            derive = DeriveOptions(7, span_metrics=False, service_graph=False) if count else DeriveOptions()
            before = time.process_time()
            result = run_task(replace(task, rules=rule_set, derive=derive))
            took_s = time.process_time() - before
            if result.error is not None:
                raise result.error
            assert not result.evaluation.troubles, result.evaluation.troubles[:1]
            if round_:
                spent[count].append(took_s)
            elif not count:
                segments = [each for each in result.segments if each.signal == LOGS.name]
    plain = min(spent[0]) / records * 1e6
    for count, most in TARGETS.items():
        value = min(spent[count]) / records * 1e6
        report.tell(_figure(f"ingest with {count} rules, CPU per record", value, "us", "without rules", plain, most))
    _backfill(task, segments, sets[50], report)
    _neighbours(task, records, rounds, plain, report)


def _expensive(count: int) -> tuple[RuleVersion, ...]:
    """Rules that share nothing: each has a pattern of its own that looks at every byte of every line."""
    pattern = "(?P<first>[a-z]+).*(?P<x{0}>[0-9]+).*(?P<last>[a-z0-9]+)$"
    matches = [f'{{service_name=~".+"}} | regexp "{pattern.format(number)}" | x{number}="7"' for number in range(count)]
    return tuple(RuleVersion(n, 1, Materialize(f"x{n}", "logs", match), 1) for n, match in enumerate(matches, 1))


def _neighbours(task: IngestTask, records: int, rounds: int, plain_us: float, report: Report) -> None:
    """Two orgs take turns on one executor: one without rules, and one whose rules want far more than they may take."""
    greedy = RuleSet(task.org_id, LOGS.name, 2, _expensive(500))
    other = replace(task, rules=greedy, derive=DeriveOptions(7, span_metrics=False, service_graph=False))
    spent: dict[bool, list[float]] = {True: [], False: []}
    cut = 0
    for _ in range(rounds):
        for is_greedy, each in ((True, other), (False, task)):
            before = time.process_time()
            result = run_task(each)
            spent[is_greedy].append(time.process_time() - before)
            if result.error is not None:
                raise result.error
            cut = max(cut, len(result.evaluation.troubles))
    allowed_s = greedy.budget.least_s + records * greedy.budget.us_per_row * 1e-6 + plain_us * records * 1e-6
    value = min(spent[False]) / records * 1e6
    report.tell(
        _figure("org without rules, beside 500 expensive ones, CPU per record", value, "us", "alone", plain_us, 1.1),
        _figure(
            f"org with 500 expensive rules, {cut} holes, CPU per task",
            min(spent[True]),
            "s",
            "allowed",
            allowed_s,
            1.25,
        ),
    )


def _backfill(task: IngestTask, segments: list[Segment], rule_set: RuleSet, report: Report) -> None:
    rows = sum(each.row_count for each in segments)
    before = time.process_time()
    for slot, segment in enumerate(segments):
        result = run_backfill(BackfillTask(task.item_id, segment, rule_set, slot, b"k" * 16, task.target))
        if result.error is not None:
            raise result.error
    took_s = time.process_time() - before
    report.tell(_figure("backfill of 50 rules, CPU per row", took_s / rows * 1e6, "us"))
    report.tell(_figure("backfill of 50 rules, million rows/s per core (higher is better)", rows / took_s / 1e6, "M/s"))
