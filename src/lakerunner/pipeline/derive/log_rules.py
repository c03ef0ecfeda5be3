"""Selects log lines for all rules of an org at once: what several rules ask of the same lines is done once.

Rules are grouped by the services that they accept, so that a rule never looks at lines of others and rules of absent
services cost nothing. Within a group equal matchers, equal line filters and equal first stages are evaluated once, with
the functions that LogQL queries use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW, keys_of
from lakerunner.model.compute import Compute
from lakerunner.model.errors import LakeError
from lakerunner.model.signals.logs import REPEAT
from lakerunner.pipeline.derive.selected import Check, Ints, Selected, Services, rows_of_batch
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR, Entries, Stage, plain, valid
from lakerunner.query.logql.needed import stored_names
from lakerunner.query.logql.records import SERVICE_NAME, UNKNOWN_SERVICE, columns_for, entries_of
from lakerunner.query.logql.selection import selected
from lakerunner.query.logql.stages.compile import compile_stage, in_order
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
    ending: list[int] = field(default_factory=list)
    following: dict[ast.Stage, _Node] = field(default_factory=dict)
    compiled: dict[ast.Stage, Stage] = field(default_factory=dict)


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

    @classmethod
    def of(cls, rule: Materialize) -> _LogRule:
        match = log_match(rule)
        ordered = in_order(match.selector.stages)
        first = next((at for at, stage in enumerate(ordered) if not isinstance(stage, ast.LineFilter)), len(ordered))
        after = {name for name, _ in match.dimensions} | {ERROR}
        if match.unwrap is not None:
            after.add(match.unwrap.label)
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
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, rule in enumerate(self._rules):
            if chosen := services.present(rule.accepts):
                groups.setdefault(chosen, []).append(place)
        for chosen, places in groups.items():
            yield from self._of_services(rows_of_batch(batch, services.rows_of(chosen)), places, check)

    def _of_services(self, batch: pa.RecordBatch, places: Sequence[int], check: Check) -> Iterator[tuple[int, Outcome]]:
        rules = self._rules
        by_matchers: dict[tuple[Matcher, ...], dict[tuple[ast.LineFilter, ...], list[int]]] = {}
        for place in places:
            rule = rules[place]
            by_matchers.setdefault(rule.others, {}).setdefault(rule.line_filters, []).append(place)
        names = frozenset[str]().union(*(rules[place].stored for place in places))
        try:
            check()
            entries = _entries(batch, names, need_lines=any(rules[place].needs_lines for place in places))
        except _FAILURES as error:
            yield from ((place, error) for place in places)
            return
        for matchers, by_filters in by_matchers.items():
            of_matchers = [place for some in by_filters.values() for place in some]
            try:
                found = selected(entries, matchers, check)
            except _FAILURES as error:
                yield from ((place, error) for place in of_matchers)
                continue
            masks: dict[ast.LineFilter, Mask] = {}
            for filters, some in by_filters.items():
                yield from self._of_filters(found, filters, masks, some, check)

    def _of_filters(
        self,
        entries: Entries,
        filters: Sequence[ast.LineFilter],
        masks: dict[ast.LineFilter, Mask],
        places: Sequence[int],
        check: Check,
    ) -> Iterator[tuple[int, Outcome]]:
        try:
            for each in filters:
                if each not in masks:
                    masks[each] = _kept_by(each, entries, check)
            keep = np.logical_and.reduce([masks[each] for each in filters]) if filters else None
            rows = None if keep is None or keep.all() else np.flatnonzero(keep)
        except _FAILURES as error:
            yield from ((place, error) for place in places)
            return
        if rows is not None and not len(rows):
            return
        names = frozenset[str]().union(*(self._rules[place].stored for place in places))
        lines = any(self._rules[place].stages or self._rules[place].compute is Compute.BYTES for place in places)
        yield from self._walk(_taken(entries, rows, names, lines), self._tree(tuple(places)), check)

    def _tree(self, places: tuple[int, ...]) -> _Node:
        """The rules by their stages; those that begin alike share them."""
        if places in self._trees:
            return self._trees[places]
        root = _Node(frozenset())
        for place in places:
            rule, node = self._rules[place], root
            left = list(rule.stages)
            while left:
                wanted = _wanted(left, rule.after)
                stage = left.pop(0)
                following = node.following.setdefault(stage, _Node(wanted))
                following.wanted |= wanted
                node = following
            node.ending.append(place)
        self._trees[places] = root
        return root

    def _walk(self, entries: Entries, node: _Node, check: Check) -> Iterator[tuple[int, Outcome]]:
        for place in node.ending:
            try:
                yield place, _measured(entries, self._rules[place], check)
            except _FAILURES as error:
                yield place, error
        for stage, following in node.following.items():
            try:
                check()
                run = node.compiled.get(stage)
                if run is None:
                    run = node.compiled[stage] = compile_stage(stage, following.wanted)
                found = run(entries, check)
            except _FAILURES as error:
                yield from ((place, error) for place in _places(following))
                continue
            if len(found):
                yield from self._walk(found, following, check)


#: What a stage may raise over lines that it was not written for. A rule that fails never stops ingest.
_FAILURES = (LakeError, pa.ArrowException, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)


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


def _kept_by(stage: ast.LineFilter, entries: Entries, check: Check) -> Mask:
    """Which lines a filter keeps, without moving any."""
    numbered = Entries(np.arange(len(entries)), entries.lines, {})
    keep = np.zeros(len(entries), np.bool_)
    keep[compile_stage(stage)(numbered, check).times_ns] = True
    return keep


def _taken(entries: Entries, rows: Ints | None, names: frozenset[str], lines: bool) -> Entries:
    """Some entries, with the labels that are needed, and their lines if they are needed."""
    entries = entries.only(names)
    if not lines:
        offsets = pa.py_buffer(np.zeros(len(entries) + 1, np.int32))
        empty = pa.StringArray.from_buffers(len(entries), offsets, pa.py_buffer(b""))
        entries = entries.with_lines(empty)
    return entries if rows is None else entries.taken(rows)


def _wanted(stages: Sequence[ast.Stage], after: frozenset[str]) -> frozenset[str]:
    """The labels that these stages or what follows them need."""
    wanted = stored_names(stages, after)
    assert wanted is not None
    return wanted


def _places(node: _Node) -> Iterator[int]:
    yield from node.ending
    for following in node.following.values():
        yield from _places(following)


def _measured(entries: Entries, rule: _LogRule, check: Check) -> Selected:
    amounts = None
    if rule.match.unwrap is not None:
        entries, amounts = unwrapped(entries, rule.match.unwrap, check)
    elif rule.compute is Compute.BYTES:
        amounts = pc.binary_length(entries.lines).to_numpy(zero_copy_only=False).astype(np.float64)
    errors = entries.label(ERROR)
    failed = np.zeros(len(entries), np.bool_)
    if errors is not None and errors.null_count < len(errors):
        failed = valid(errors) & np.asarray(pc.not_equal(pc.fill_null(plain(errors), ""), ""))
    if amounts is not None:
        failed |= ~np.isfinite(amounts)
    failed_ns = entries.times_ns[failed]
    if len(failed_ns):
        entries = entries.filtered(~failed)
        amounts = None if amounts is None else amounts[~failed]
    found = [entries.label(name) for name, _ in rule.match.dimensions]
    dimensions = [pa.nulls(len(entries), pa.string()) if values is None else values for values in found]
    return Selected(entries.times_ns, dimensions, amounts, failed_ns)
