"""All materialization rules of an org and signal, compiled together and evaluated in one pass over rows.

A rule that fails, or that makes the rules take too long, loses its samples of these rows and is reported as a hole; the
others and the rows themselves are not concerned.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import LakeError, LimitHit
from lakerunner.model.series_of_day import SeriesOfDay
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, TRACES, signal_named
from lakerunner.pipeline.derive.buckets import Buckets, bucketed, capped, merged, overflowing
from lakerunner.pipeline.derive.evaluate import Derived
from lakerunner.pipeline.derive.log_rules import LogRules
from lakerunner.pipeline.derive.metric_rules import MetricRules
from lakerunner.pipeline.derive.rule_samples import Found, samples_of, series_of_days
from lakerunner.pipeline.derive.selected import Check, Ints, Selected
from lakerunner.pipeline.derive.trace_rules import TraceRules
from lakerunner.pipeline.derive.work_time import work_time
from lakerunner.pipeline.repeats import times_of_repeated_spans
from lakerunner.rules.definitions import Materialize

#: What tells spans apart that were sent twice.
_IDENTITY = {
    "trace_id": pa.string(),
    "span_id": pa.string(),
    "start_timestamp": pa.timestamp("ns", "UTC"),
    "duration_ns": pa.int64(),
}


@dataclass(frozen=True, slots=True)
class RuleVersion:
    """One version of a rule, as the catalog identifies it."""

    rule_id: int
    version: int
    rule: Materialize
    #: The version of the catalog with which it began.
    since_version: int = 0
    #: When it was applied, in seconds since 1970.
    created_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RuleBudget:
    """CPU time that the rules of an org may take together: they slow the ingest of others by a share at most."""

    us_per_row: float = 20.0
    #: In any task, however few rows it has.
    least_s: float = 2.0


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of an org and signal in one version of the catalog. Without rules, rows are evaluated with none."""

    org_id: uuid.UUID
    signal: str
    version: int
    rules: tuple[RuleVersion, ...] = ()
    budget: RuleBudget = RuleBudget()
    #: Rules and days that have all the series that they may have.
    full: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Trouble:
    """A stretch of time in which the samples of a rule do not say what its rows say; the last time is included."""

    rule_id: int
    name: str
    first_ns: int
    last_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What rules made of rows."""

    derived: Derived | None = None
    #: Rules that have samples.
    rule_ids: tuple[int, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    #: Rule -> series that went to its overflow.
    overflowed: tuple[tuple[str, int], ...] = ()
    series: tuple[SeriesOfDay, ...] = ()


class RuleEvaluation:
    """Evaluates a rule set over the parts of one task, whose partial results become samples together."""

    def __init__(self, rules: RuleSet) -> None:
        self._set = rules
        self._signal = signal_named(rules.signal)
        self._parts: dict[int, list[Buckets]] = {}
        self._troubles: list[Trouble] = []
        self._used_s = 0.0
        self._allowed_s = rules.budget.least_s
        #: The last trace of the spans before, which lie in order of traces.
        self._last_trace: pa.Table | None = None
        #: The series and time of the last sample before.
        self._last_sample: tuple[int, int] | None = None

    def add(self, rows: pa.Table, series: pa.Table | None = None) -> None:
        """Evaluate all rules over rows as they are stored; samples of metrics come with their series."""
        if not self._set.rules or not rows.num_rows:
            return
        began_s = work_time()
        self._allowed_s += rows.num_rows * self._set.budget.us_per_row * 1e-6
        left_s = self._allowed_s - self._used_s

        def check() -> None:
            if work_time() - began_s > left_s:
                raise LimitHit("the rules of the org took longer than derive.rule_us_per_row allows")

        try:
            if self._signal is TRACES:
                self._note_repeats(rows)
            if self._signal is METRICS:
                self._note_repeated_samples(rows)
            compiled = _compiled(self._set)
            for place, outcome in compiled.select(rows, check, series):
                self._note(self._set.rules[place], outcome, rows)
        except (LakeError, pa.ArrowException, ValueError, TypeError, KeyError, IndexError, MemoryError) as error:
            # Nothing of this part is counted for any rule.
            for rule in self._set.rules:
                self._fail(rule, error, rows)
        self._used_s += work_time() - began_s

    def _note_repeats(self, spans: pa.Table) -> None:
        """TraceQL counts a span once that was sent twice. Rules count it twice."""
        spans = pa.table({name: spans.column(name).cast(kind) for name, kind in _IDENTITY.items()})
        if self._last_trace is not None:
            # A segment that is read in pieces may be cut within a trace.
            spans = pa.concat_tables([self._last_trace, spans])
        trace_ids = spans.column("trace_id")
        self._last_trace = spans.filter(pc.equal(trace_ids, trace_ids[-1]))
        times_ns = times_of_repeated_spans(spans, _times_ns(self._signal, spans))
        if len(times_ns):
            for rule in self._set.rules:
                self._trouble(rule, times_ns, "spans were sent twice")

    def _note_repeated_samples(self, samples: pa.Table) -> None:
        """PromQL reads one sample per series and time. Rules count every one. Samples are sorted by series and time."""
        tids, times_ns = samples.column("tid").to_numpy(), _times_ns(self._signal, samples)
        if self._last_sample is not None:
            # A segment that is read in pieces may be cut between two of them.
            tids, times_ns = np.append(self._last_sample[0], tids), np.append(self._last_sample[1], times_ns)
        self._last_sample = int(tids[-1]), int(times_ns[-1])
        again = (tids[1:] == tids[:-1]) & (times_ns[1:] == times_ns[:-1])
        if again.any():
            for rule in self._set.rules:
                self._trouble(rule, times_ns[1:][again], "samples were sent twice")

    def _note(self, rule: RuleVersion, outcome: Selected | Exception, rows: pa.Table) -> None:
        if isinstance(outcome, Exception):
            self._fail(rule, outcome, rows)
            return
        if len(outcome.failed_ns):
            self._trouble(rule, outcome.failed_ns, "its stages failed on some rows")
        if len(outcome.empty_ns):
            self._trouble(rule, outcome.empty_ns, "some rows have a dimension without a value")
        if len(outcome.times_ns):
            found = bucketed(outcome, rule.rule.compute)
            # Memory is bounded by the limit of series, whatever the rows are.
            limit = 4 * rule.rule.max_series
            self._parts.setdefault(rule.rule_id, []).append(capped(found, limit))

    def _fail(self, rule: RuleVersion, error: Exception, rows: pa.Table) -> None:
        reason = error.message if isinstance(error, LakeError) else f"{type(error).__name__}: {error}"
        self._trouble(rule, _times_ns(self._signal, rows), f"it failed: {reason}"[:300])

    def _trouble(self, rule: RuleVersion, times_ns: Ints, reason: str) -> None:
        first_ns, last_ns = int(times_ns.min()), int(times_ns.max())
        self._troubles.append(Trouble(rule.rule_id, rule.rule.name, first_ns, last_ns, reason))

    def result(self, slot: int, series_key: bytes) -> Evaluation:
        made: list[Found] = []
        rule_ids: list[int] = []
        overflowed: list[tuple[str, int]] = []
        for rule in self._set.rules:
            parts = self._parts.get(rule.rule_id)
            if not parts:
                continue
            full = [day for rule_id, day in self._set.full if rule_id == rule.rule_id]
            found = capped(overflowing(merged(parts), full), rule.rule.max_series)
            lost = found.overflowed + (sum(part.overflowed for part in parts) if len(parts) > 1 else 0)
            if lost:
                overflowed.append((rule.rule.name, lost))
                times = np.array([found.bucket.min() * 10**10 + 1, (found.bucket.max() + 1) * 10**10])
                self._trouble(rule, times, f"it had more than {rule.rule.max_series} series")
            made.append(Found(rule.rule, rule.version, found, rule.rule_id))
            rule_ids.append(rule.rule_id)
        derived = samples_of(made, slot, series_key)
        series = () if derived is None else series_of_days(made, derived)
        return Evaluation(derived, tuple(rule_ids), tuple(self._troubles), tuple(overflowed), series)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """Rules that could be compiled, and why others could not."""

    rules: LogRules | TraceRules | MetricRules
    places: tuple[int, ...]
    failed: tuple[tuple[int, LakeError], ...] = field(default=())

    def select(
        self, rows: pa.Table, check: Check, series: pa.Table | None
    ) -> Iterator[tuple[int, Selected | Exception]]:
        yield from self.failed
        rules = self.rules
        found = rules.select(rows, check, series) if isinstance(rules, MetricRules) else rules.select(rows, check)
        for at, outcome in found:
            yield self.places[at], outcome


#: Compiled rules of this process, the latest used last.
_COMPILED: OrderedDict[tuple[str, tuple[str, ...]], _Compiled] = OrderedDict()
_MOST_COMPILED = 64


def _compiled(rules: RuleSet) -> _Compiled:
    """Compiled once per process and text of the rules: numbers of rules and versions mean others in another lake."""
    key = (rules.signal, tuple(repr(each.rule) for each in rules.rules))
    found = _COMPILED.pop(key, None)
    if found is None:
        found = _compile(rules)
    _COMPILED[key] = found
    while len(_COMPILED) > _MOST_COMPILED:
        _COMPILED.popitem(last=False)
    return found


_KINDS: dict[str, type[LogRules] | type[TraceRules] | type[MetricRules]] = {
    LOGS.name: LogRules,
    TRACES.name: TraceRules,
    METRICS.name: MetricRules,
}


def _compile(rules: RuleSet) -> _Compiled:
    kind = _KINDS[rules.signal]
    failed: list[tuple[int, LakeError]] = []
    places: list[int] = []
    for place, each in enumerate(rules.rules):
        try:
            kind([each.rule])
            places.append(place)
        except LakeError as error:
            failed.append((place, error))
    return _Compiled(kind([rules.rules[place].rule for place in places]), tuple(places), tuple(failed))


def _times_ns(signal: Signal, rows: pa.Table) -> Ints:
    times: Ints = rows.column(signal.time_column).cast(pa.int64()).to_numpy() * signal.time_unit_ns
    return times
