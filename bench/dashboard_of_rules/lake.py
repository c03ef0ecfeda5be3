"""Load a day of the demo shop, an hour 24 times: raw lines, what rules make of them, and the tiers of these."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench.dashboard_of_rules.panels import RULES

from lakerunner.demo.produce import batches
from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.read import read_object
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.index.rollup_windows import due_windows, mark_inserted
from lakerunner.index.rule_catalog import NewRule, change_rules, live_rules
from lakerunner.index.rule_versions import RulesUsed
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.rollup_window import Window
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS, METRICS
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, NS_PER_S
from lakerunner.pipeline.derive.rule_set import RuleEvaluation, RuleSet, RuleVersion
from lakerunner.pipeline.derive.spans import metric_tables
from lakerunner.pipeline.items import load_items, make_item
from lakerunner.pipeline.repeats import with_repeats
from lakerunner.pipeline.rollup.stage import ROLLUP, RollupRunner
from lakerunner.pipeline.rollup.task import run_rollup
from lakerunner.pipeline.split import Tables, merged, parts
from lakerunner.pipeline.worker import run_batch
from lakerunner.pipeline.write_part import write_part
from lakerunner.rules.stored import to_document
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

HOURS = 24
COLLECTOR = "shop"
#: How long an item of ingest gathers lines where the demo runs live.
_ITEM_S = 5
_KEY = bytes(16)
_SEED = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """How far the day is loaded. It ends with an hour of the clock, shortly before it was begun."""

    start_ns: int
    rate: float
    hours: int = 0
    rolled_up: bool = False

    @property
    def end_ns(self) -> int:
        return self.start_ns + HOURS * NS_PER_HOUR


def read_state(folder: Path, rate: float) -> Loaded:
    note = folder / "day.json"
    if note.exists():
        found = Loaded(**json.loads(note.read_text()))
        if found.rate != rate:
            raise SystemExit(f"cannot load into {folder}: it has a day at a rate of {found.rate}; remove it")
        return found
    return Loaded(time.time_ns() // NS_PER_HOUR * NS_PER_HOUR - HOURS * NS_PER_HOUR, rate)


def load(database: Database, folder: Path, rate: float, hours: int) -> Loaded:
    """Load up to so many further hours; after the last, make the tiers."""
    state = read_state(folder, rate)
    day = _Day(database, folder, state)
    for _ in range(hours):
        if state.hours == HOURS:
            break
        day.load_hour(state.hours)
        state = replace(state, hours=state.hours + 1)
        _write_state(folder, state)
    if state.hours == HOURS and not state.rolled_up:
        day.roll_up()
        state = replace(state, rolled_up=True)
        _write_state(folder, state)
    return state


def _write_state(folder: Path, state: Loaded) -> None:
    about = {"start_ns": state.start_ns, "rate": state.rate, "hours": state.hours, "rolled_up": state.rolled_up}
    (folder / "day.json").write_text(json.dumps(about))


class _Day:
    def __init__(self, database: Database, folder: Path, state: Loaded) -> None:
        self._database, self._state = database, state
        self._settings = Settings(data=DataSettings(dir=folder))
        self._store = open_store(StoreConfig.of(self._settings))
        self._rules = _rules(database)

    def load_hour(self, hour: int) -> None:
        rows = _shifted(self._hour, hour * NS_PER_HOUR)
        self._put_lines(rows, is_last=hour == HOURS - 1)

    @cached_property
    def _hour(self) -> pa.Table:
        """The lines of the first hour, as ingest has them before it writes them."""
        start_ns = self._state.start_ns
        # The shop is as busy as on average at ten o'clock; its hours differ in nothing else.
        like_ns = start_ns // NS_PER_DAY * NS_PER_DAY + 10 * NS_PER_HOUR
        bodies = batches(LOGS.name, _SEED, like_ns, like_ns + NS_PER_HOUR, self._state.rate)
        decoded = [read_object(body, LOGS, "logs.binpb", Limits(), Options()).tables for body in bodies]
        (part,) = parts(LOGS, merged(LOGS, decoded, AttributeTypes()), time.time_ns())
        return _shifted(with_repeats(part[LOGS.rows.suffix]), start_ns - like_ns)

    def _put_lines(self, rows: pa.Table, *, is_last: bool) -> None:
        """One segment of lines, and one of the samples that rules make of them, in one commit."""
        made = [self._write(LOGS, {LOGS.rows.suffix: rows}, self._rules.version)]
        derived = []
        for slot, lines in enumerate(_items(rows) if is_last else [rows]):
            evaluation = RuleEvaluation(self._rules)
            evaluation.add(lines)
            found = evaluation.result(slot % 1_000, _KEY)
            assert not found.troubles, found.troubles
            if found.derived is not None:
                derived.append(found.derived)
        tables = metric_tables(derived)
        if tables is not None:
            # Compaction keeps each series once.
            once = merged(METRICS, [tables])
            made += [self._write(METRICS, part) for part in parts(METRICS, once, time.time_ns())]
        rule_ids = [each.rule_id for each in self._rules.rules]
        self._commit(LOGS.name, made, RulesUsed(LOGS.name, self._rules.version, rule_ids))

    def _write(self, signal: object, part: Tables, version: int = 0) -> Segment:
        return write_part(DEFAULT_ORG_ID, COLLECTOR, signal, part, self._store, time.time_ns(), version)  # type: ignore[arg-type]

    def _commit(self, signal: str, made: Sequence[Segment], rules: RulesUsed | None = None) -> None:
        item_id = uuid.uuid4()
        with self._database.transaction() as tx:
            create_item(tx, WorkItem(item_id, "ingest", DEFAULT_ORG_ID, signal))
        assert commit_item(self._database, ItemResult(item_id, made=made, rules=rules)) is Outcome.COMMITTED
        with self._database.transaction() as tx:
            mark_inserted(tx, made)

    def roll_up(self) -> None:
        """Make all windows that end before the last hour begins: its own are not over in a lake that runs."""
        until_ns = self._state.end_ns - NS_PER_HOUR
        runner = RollupRunner(self._settings, self._database, lambda tasks: [run_rollup(task) for task in tasks])
        while True:
            with self._database.transaction() as tx:
                due = [window for window in due_windows(tx, 0.0) if window.end_ns <= until_ns]
            if not due:
                break
            groups: dict[tuple[int, int], list[Window]] = {}
            for window in due:
                groups.setdefault((window.start_ns, window.end_ns), []).append(window)
            for windows in groups.values():
                item_id = make_item(self._database, ROLLUP, windows)
                assert item_id is not None
                with self._database.transaction() as tx:
                    items, _ = load_items(tx, ROLLUP, [item_id], self._settings.pipeline)
                ends = run_batch(ROLLUP, self._database, runner, list(items.values()), {item_id: 1})
                assert set(ends.values()) == {None}, ends
        # Autovacuum would do this before the first query.
        with self._database.transaction() as tx:
            tx.execute("ANALYZE segment")
            tx.execute("ANALYZE rollup_window")


def _rules(database: Database) -> RuleSet:
    """The rules of the panels, applied before the first line."""
    with database.transaction() as tx:
        stored = live_rules(tx, DEFAULT_ORG_ID)
        if not stored:
            new = [NewRule(rule.signal, rule.name, "bench", to_document(rule)) for rule in RULES]
            stored = change_rules(tx, DEFAULT_ORG_ID, new, (), "bench")
    by_name = {rule.name: rule for rule in RULES}
    versions = tuple(RuleVersion(each.rule_id, each.version, by_name[each.name]) for each in stored)
    return RuleSet(DEFAULT_ORG_ID, LOGS.name, stored[0].since_version, versions)


def _shifted(rows: pa.Table, by_ns: int) -> pa.Table:
    """The lines at later times; their order stays."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            unit_ns = {"ms": 1_000_000, "us": 1_000, "ns": 1}[field.type.unit]
            later = pc.add(rows.column(at).cast(pa.int64()), by_ns // unit_ns).cast(field.type)
            rows = rows.set_column(at, field, later)
    return rows


def _items(rows: pa.Table) -> Iterator[pa.Table]:
    """The lines as items of ingest have them, by their time."""
    times = rows.column(LOGS.time_column).cast(pa.int64()).to_numpy() * LOGS.time_unit_ns
    place = times // (_ITEM_S * NS_PER_S)
    order = np.argsort(place, kind="stable")
    ordered = rows.take(pa.array(order)).combine_chunks()
    bounds = np.flatnonzero(np.diff(place[order], prepend=-1, append=-1))
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield ordered.slice(start, end - start)
