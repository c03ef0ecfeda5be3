"""Selects log lines for all rules of an org at once: what several rules ask of the same lines is done once.

Lines lie in order of their services, so the lines of a rule are a few stretches of them, and rules of absent services
cost nothing. Equal matchers, line filters, first stages and fields of several rules are evaluated once, over the lines
of all their services together, with the functions that LogQL queries use. Only then each rule takes its own stretches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW, keys_of
from lakerunner.model.compute import Compute
from lakerunner.model.errors import LakeError
from lakerunner.model.signals.logs import REPEAT
from lakerunner.pipeline.derive.selected import Check, Coded, Floats, Ints, Selected, Services, distinct_values
from lakerunner.query.logql import ast
from lakerunner.query.logql.always_present import always_present
from lakerunner.query.logql.entries import ERROR, Entries, Stage, plain, valid
from lakerunner.query.logql.needed import stored_names
from lakerunner.query.logql.records import SERVICE_NAME, UNKNOWN_SERVICE, columns_for, entries_of
from lakerunner.query.logql.selection import selected
from lakerunner.query.logql.stages.compile import assigned_labels, compile_stage, in_order
from lakerunner.query.logql.stages.unwrap import unwrapped
from lakerunner.query.series.matchers import Matcher
from lakerunner.rules.definitions import Materialize
from lakerunner.rules.matches import LogMatch, log_match

Mask = npt.NDArray[np.bool_]
#: What became of a rule: its rows, or why it failed.
Outcome = Selected | Exception


@dataclass(slots=True)
class _Node:
    """Rules with the same stages up to here."""

    #: Labels that these stages and what follows them read.
    wanted: frozenset[str]
    #: All rules that have these stages, and those that have no others.
    places: list[int] = field(default_factory=list)
    ending: list[int] = field(default_factory=list)
    following: dict[ast.Stage, _Node] = field(default_factory=dict)
    compiled: dict[ast.Stage, Stage] = field(default_factory=dict)
    #: Labels that these stages name.
    assigned: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _LogRule:
    compute: Compute
    match: LogMatch
    #: Matchers of the service and of other labels.
    service: tuple[Matcher, ...]
    others: tuple[Matcher, ...]
    line_filters: tuple[ast.LineFilter, ...]
    stages: tuple[ast.Stage, ...]
    #: Labels that are needed after the stages, and stored labels that are read.
    after: frozenset[str]
    stored: frozenset[str]
    #: Dimensions that some lines may lack, and others have without a value. The series of a rule do not tell which.
    sometimes: frozenset[str]

    @classmethod
    def of(cls, rule: Materialize) -> _LogRule:
        match = log_match(rule)
        ordered = in_order(match.selector.stages)
        first = next((at for at, stage in enumerate(ordered) if not isinstance(stage, ast.LineFilter)), len(ordered))
        after = {name for name, _ in match.dimensions} | {ERROR}
        if match.unwrap is not None:
            after.add(match.unwrap.label)
        if match.distinct:
            after.add(match.distinct)
        stages = tuple(ordered[first:])
        matchers = match.selector.matchers
        others = tuple(each for each in matchers if each.name != SERVICE_NAME)
        stored = stored_names(stages, frozenset(after) | {each.name for each in others})
        assert stored is not None
        return cls(
            rule.compute,
            match,
            tuple(each for each in matchers if each.name == SERVICE_NAME),
            others,
            tuple(stage for stage in ordered[:first] if isinstance(stage, ast.LineFilter)),
            stages,
            frozenset(after),
            stored,
            frozenset(name for name, _ in match.dimensions) - always_present(ordered),
        )

    @property
    def needs_lines(self) -> bool:
        of_labels = ast.LabelFilter | ast.Drop | ast.Keep
        return (
            bool(self.line_filters)
            or self.compute is Compute.BYTES
            or any(not isinstance(stage, of_labels) for stage in self.stages)
        )

    def accepts(self, service: str) -> bool:
        return all(matcher.matches(service) for matcher in self.service)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines in order of their services. The times of the entries are the numbers of the lines."""

    entries: Entries
    times_ns: Ints
    #: Where the lines of each service begin and end.
    bounds: Ints
    #: The services of each rule that has lines.
    services: dict[int, tuple[int, ...]]

    def of(self, entries: Entries, places: Iterable[int]) -> Entries:
        """Those of these entries that lie in services of the rules; a view of them where they are neighbours."""
        stretches = self.stretches(entries, places)
        if len(stretches) == 1:
            return _between(entries, *stretches[0])
        return entries.taken(_rows_of(stretches))

    def stretches(self, entries: Entries, places: Iterable[int]) -> list[tuple[int, int]]:
        """Where the lines of the rules lie among these entries. Neighbours are one stretch."""
        chosen = np.array(sorted({at for place in places for at in self.services[place]}), np.int64)
        lines = entries.times_ns
        starts = np.searchsorted(lines, self.bounds[chosen])
        ends = np.searchsorted(lines, self.bounds[chosen + 1])
        merged = [(int(starts[0]), int(ends[0]))]
        for start, end in zip(starts[1:].tolist(), ends[1:].tolist(), strict=True):
            if start == merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return merged


class LogRules:
    """The compiled rules of one version of an org's catalog."""

    def __init__(self, rules: Sequence[Materialize]) -> None:
        self._rules = [_LogRule.of(rule) for rule in rules]
        self._trees: dict[tuple[int, ...], _Node] = {}

    def select(self, rows: pa.Table, check: Check) -> Iterator[tuple[int, Outcome]]:
        """The lines of each rule that has any, by the place of the rule."""
        batch = _batch(rows)
        if not batch.num_rows:
            return
        services = Services.of_batch(batch, UNKNOWN_SERVICE)
        present = self._present(services)
        if not present:
            return
        if not services.is_sorted:
            batch = batch.take(pa.array(services.rows))
        names = frozenset[str]().union(*(self._rules[place].stored for place in present))
        needs_lines = any(self._rules[place].needs_lines for place in present)
        try:
            check()
            entries = _entries(batch, names, need_lines=needs_lines)
        except _FAILURES as error:
            yield from ((place, error) for place in present)
            return
        numbered = replace(entries, times_ns=np.arange(len(entries)))
        yield from self._of_lines(_Lines(numbered, entries.times_ns, services.bounds, present), check)

    def _present(self, services: Services) -> dict[int, tuple[int, ...]]:
        """The rules that accept services with lines, and these services."""
        accepted: dict[tuple[Matcher, ...], tuple[int, ...]] = {}
        found: dict[int, tuple[int, ...]] = {}
        for place, rule in enumerate(self._rules):
            if rule.service not in accepted:
                accepted[rule.service] = services.present(rule.accepts)
            if chosen := accepted[rule.service]:
                found[place] = chosen
        return found

    def _of_lines(self, lines: _Lines, check: Check) -> Iterator[tuple[int, Outcome]]:
        by_matchers: dict[tuple[Matcher, ...], dict[tuple[ast.LineFilter, ...], list[int]]] = {}
        for place in lines.services:
            rule = self._rules[place]
            by_matchers.setdefault(rule.others, {}).setdefault(rule.line_filters, []).append(place)
        for matchers, by_filters in by_matchers.items():
            places = [place for some in by_filters.values() for place in some]
            try:
                found = selected(lines.of(lines.entries, places), matchers, check)
            except _FAILURES as error:
                yield from ((place, error) for place in places)
                continue
            users: dict[ast.LineFilter, list[int]] = {}
            for filters, some in by_filters.items():
                for each in filters:
                    users.setdefault(each, []).extend(some)
            masks: dict[ast.LineFilter, Mask] = {}
            for filters, some in by_filters.items():
                try:
                    for each in filters:
                        if each not in masks:
                            masks[each] = _kept_by(each, found, lines.stretches(found, users[each]), check)
                    rows = _kept_rows(lines.stretches(found, some), [masks[each] for each in filters])
                except _FAILURES as error:
                    yield from ((place, error) for place in some)
                    continue
                if len(rows):
                    yield from self._walk(lines, self._taken(found, rows, some), self._tree(tuple(some)), check)

    def _taken(self, entries: Entries, rows: Ints, places: Sequence[int]) -> Entries:
        """Some entries, with the labels that the rules need, and with lines if they need them."""
        rules = [self._rules[place] for place in places]
        entries = entries.only(frozenset[str]().union(*(rule.stored for rule in rules)))
        if not any(rule.stages or rule.compute is Compute.BYTES for rule in rules):
            offsets = pa.py_buffer(np.zeros(len(entries) + 1, np.int32))
            entries = entries.with_lines(pa.StringArray.from_buffers(len(entries), offsets, pa.py_buffer(b"")))
        first, last = int(rows[0]), int(rows[-1])
        return _between(entries, first, last + 1) if last - first + 1 == len(rows) else entries.taken(rows)

    def _tree(self, places: tuple[int, ...]) -> _Node:
        """The rules by their stages; those that begin alike share them."""
        if places in self._trees:
            return self._trees[places]
        root = _Node(frozenset(), list(places))
        for place in places:
            rule, node = self._rules[place], root
            left = list(rule.stages)
            while left:
                wanted = _wanted(left, rule.after)
                stage = left.pop(0)
                known = node.assigned | assigned_labels(stage)
                following = node.following.setdefault(stage, _Node(wanted, assigned=known))
                following.wanted |= wanted
                following.places.append(place)
                node = following
            node.ending.append(place)
        if len(self._trees) >= _MOST_TREES:
            self._trees.clear()
        self._trees[places] = root
        return root

    def _walk(self, lines: _Lines, entries: Entries, node: _Node, check: Check) -> Iterator[tuple[int, Outcome]]:
        if node.ending:
            yield from self._ending(lines, entries, node.ending, check)
        for stage, following in node.following.items():
            try:
                check()
                run = node.compiled.get(stage)
                if run is None:
                    run = node.compiled[stage] = compile_stage(stage, following.wanted, following.assigned)
                found = run(lines.of(entries, following.places), check)
            except _FAILURES as error:
                yield from ((place, error) for place in following.places)
                continue
            if len(found):
                yield from self._walk(lines, found, following, check)

    def _ending(
        self, lines: _Lines, entries: Entries, places: Sequence[int], check: Check
    ) -> Iterator[tuple[int, Outcome]]:
        """The rows of rules whose stages have all been run. What is alike is computed for all of them at once."""
        alike: dict[_Measure, list[int]] = {}
        for place in places:
            rule = self._rules[place]
            measure = _Measure(rule.match.unwrap, rule.match.distinct, rule.compute is Compute.BYTES)
            alike.setdefault(measure, []).append(place)
        for measure, some in alike.items():
            try:
                check()
                found = _measured(lines.of(entries, some), lines.times_ns, measure, check)
                names = dict.fromkeys(name for place in some for name, _ in self._rules[place].match.dimensions)
                columns = {name: found.entries.label(name) for name in names}
                labels = {name: Coded.of(values, len(found.entries)) for name, values in columns.items()}
                empty = {name: mask for name, values in columns.items() if (mask := _empty(values)) is not None}
                outcomes = [
                    self._selected(lines.stretches(found.entries, [place]), found, labels, empty, place)
                    for place in some
                ]
            except _FAILURES as error:
                yield from ((place, error) for place in some)
                continue
            yield from zip(some, outcomes, strict=True)

    def _selected(
        self,
        stretches: Sequence[tuple[int, int]],
        found: _Measured,
        labels: dict[str, Coded],
        empty: dict[str, Mask],
        place: int,
    ) -> Selected:
        rows: slice | Ints = slice(*stretches[0]) if len(stretches) == 1 else _rows_of(stretches)
        failed_ns = _NONE
        if found.failed is not None and (failed := found.failed[rows]).any():
            numbers = _rows_of(stretches)
            rows, failed_ns = numbers[~failed], found.times_ns[numbers[failed]]
        rule, times_ns = self._rules[place], found.times_ns[rows]
        dimensions = [labels[name].taken(rows) for name, _ in rule.match.dimensions]
        amounts = None if found.amounts is None else found.amounts[rows]
        masks = [empty[name][rows] for name in rule.sometimes if name in empty]
        empty_ns = times_ns[np.logical_or.reduce(masks)] if masks else _NONE
        return Selected(times_ns, dimensions, amounts, failed_ns, empty_ns)


_NONE: Ints = np.zeros(0, np.int64)
#: What a stage may raise over lines that it was not written for. A rule that fails never stops ingest.
_FAILURES = (LakeError, pa.ArrowException, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)
#: Trees of stages that are kept; there is one per set of rules that met lines.
_MOST_TREES = 512


def _batch(rows: pa.Table) -> pa.RecordBatch:
    """The rows without repeats, in one piece."""
    if not rows.num_rows:
        return pa.RecordBatch.from_pylist([], schema=rows.schema)
    [batch] = rows.combine_chunks().to_batches()
    if REPEAT not in batch.schema.names:
        # Columns without a value are not stored.
        return batch
    repeats = batch.column(REPEAT)
    return batch if repeats.null_count == len(repeats) else batch.filter(repeats.is_null())


def _entries(batch: pa.RecordBatch, names: frozenset[str], *, need_lines: bool) -> Entries:
    columns = columns_for(names, need_lines=need_lines) or ()
    stored = [name for name in (*columns, OVERFLOW) if name in batch.schema.names]
    return entries_of(batch.select(list(dict.fromkeys(stored))), keys_of(batch.schema), names)


def _between(entries: Entries, start: int, end: int) -> Entries:
    """A stretch of entries, as a view."""
    if start == 0 and end == len(entries):
        return entries
    size = end - start
    return Entries(
        entries.times_ns[start:end],
        entries.lines.slice(start, size),
        {key: values.slice(start, size) for key, values in entries.columns.items()},
        {key: mask[start:end] for key, mask in entries.removed.items()},
    )


def _rows_of(stretches: Sequence[tuple[int, int]]) -> Ints:
    return np.concatenate([np.arange(start, end) for start, end in stretches])


def _kept_by(stage: ast.LineFilter, entries: Entries, stretches: Sequence[tuple[int, int]], check: Check) -> Mask:
    """Which lines of some stretches a filter keeps."""
    keep = np.zeros(len(entries), np.bool_)
    first, last = stretches[0][0], stretches[-1][1]
    # Looking at a few lines more is cheaper than copying those that are wanted.
    if last - first <= 2 * sum(end - start for start, end in stretches):
        rows, lines = np.arange(first, last), entries.lines.slice(first, last - first)
    else:
        rows = _rows_of(stretches)
        lines = entries.lines.take(pa.array(rows))
    if len(rows):
        keep[compile_stage(stage)(Entries(rows, lines, {}), check).times_ns] = True
    return keep


def _kept_rows(stretches: Sequence[tuple[int, int]], masks: Sequence[Mask]) -> Ints:
    """The rows of some stretches that all masks keep."""
    if not masks:
        return _rows_of(stretches)
    found = [np.flatnonzero(np.logical_and.reduce([mask[a:b] for mask in masks])) + a for a, b in stretches]
    return np.concatenate(found)


def _wanted(stages: Sequence[ast.Stage], after: frozenset[str]) -> frozenset[str]:
    """The labels that these stages or what follows them need."""
    wanted = stored_names(stages, after)
    assert wanted is not None
    return wanted


@dataclass(frozen=True, slots=True)
class _Measure:
    """What is computed of each entry."""

    unwrap: ast.Unwrap | None
    #: The label whose different values are counted.
    distinct: str
    is_bytes: bool


@dataclass(frozen=True, slots=True)
class _Measured:
    entries: Entries
    times_ns: Ints
    #: What is computed of each entry; None where entries are counted.
    amounts: Floats | None
    #: The entries that a stage failed on; None if there are none.
    failed: Mask | None


def _empty(values: pa.Array | None) -> Mask | None:
    """The entries that have the label without a value; None if there are none."""
    if values is None:
        return None
    if pa.types.is_dictionary(values.type):
        place = pc.index(values.dictionary, pa.scalar("", values.dictionary.type)).as_py()
        is_empty = None if place < 0 else pc.equal(values.indices, place)
    else:
        is_empty = pc.equal(values, "")
    if is_empty is None or not pc.any(is_empty).as_py():
        return None
    mask: Mask = is_empty.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _measured(entries: Entries, times_ns: Ints, measure: _Measure, check: Check) -> _Measured:
    amounts = None
    if measure.unwrap is not None:
        entries, amounts = unwrapped(entries, measure.unwrap, check)
    elif measure.distinct:
        rows, amounts = distinct_values(Coded.of(entries.label(measure.distinct), len(entries)))
        entries = entries.taken(rows) if len(rows) < len(entries) else entries
    elif measure.is_bytes:
        amounts = pc.binary_length(entries.lines).to_numpy(zero_copy_only=False).astype(np.float64)
    errors = entries.label(ERROR)
    failed: Mask = np.zeros(len(entries), np.bool_)
    if errors is not None and errors.null_count < len(errors):
        failed = valid(errors) & np.asarray(pc.not_equal(pc.fill_null(plain(errors), ""), ""))
    if amounts is not None:
        failed |= ~np.isfinite(amounts)
    return _Measured(entries, times_ns[entries.times_ns], amounts, failed if failed.any() else None)
