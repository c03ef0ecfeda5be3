"""A plan some of whose parts are answered by rules, at the steps for which the rules have all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lakerunner.model.errors import Bug
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.language import Check, Evaluated, StepPlan
from lakerunner.query.plan.coverage import Gap
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.rewriting import Ruled
from lakerunner.query.rules.coverage import Bools, Windows
from lakerunner.query.rules.target import Target
from lakerunner.query.run import evaluated
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.vectors.annotations import Annotations

#: A range that is covered in more stretches than this is read raw: each stretch costs a round trip.
_MAX_STRETCHES = 16


@dataclass(frozen=True, slots=True)
class RuledPart:
    """A part of a query, the plan over the series of the rule that answers it, and where these are incomplete."""

    #: The node of the tree, whose identity tells parts apart.
    node: object
    text: str
    signal: str
    rule: str
    rule_id: int
    version: int
    target: Target
    plan: StepPlan
    windows: Windows
    gaps: tuple[Gap, ...] = ()
    #: The metric that a rule over metrics reads.
    metric: str = ""
    #: The node of the part that this one is a part of.
    within: object = None

    def covered(self, steps: Ints) -> Bools:
        return self.windows.covered(steps * NS_PER_MS, self.gaps)

    def block(self, steps: Ints, source: SeriesSource, check: Check, max_samples: int) -> tuple[Block, int]:
        """The value of the part, and the samples that it took."""
        found = evaluated(self.plan, steps, source, check, max_samples)
        return self.target.shaped(found.block), found.samples


class Substitution(Protocol):
    """How a language puts the values of parts into the rest of a query."""

    #: Whether groups of steps may be cut where a rule begins or ends to have all rows.
    cuts: bool

    def answers_all(self, parts: Sequence[RuledPart]) -> bool:
        """Whether the query reads nothing beside these parts."""
        ...

    def evaluate(
        self, parts: Sequence[RuledPart], steps: Ints, source: SeriesSource, check: Check, max_samples: int
    ) -> Evaluated: ...


class RuledSteps(Ruled):
    """A query over steps. Each group of steps is answered by the rules that cover all of it, and raw otherwise."""

    # Its parts are pushed down, each to the worker that has its segments.
    pushable = False

    def __init__(self, raw: StepPlan, parts: Sequence[RuledPart], substitution: Substitution) -> None:
        self.raw, self.parts = raw, tuple(parts)
        self._substitution = substitution
        self.language = raw.language  # type: ignore[misc]
        self.times, self.options = raw.times, raw.options
        self.splittable, self.reads_rows = raw.splittable, raw.reads_rows
        used = ", ".join(f"{part.text} by {part.rule} version {part.version}" for part in self.parts)
        self.canonical = f"{raw.canonical} answered by rules: {used}"
        ruled = tuple(leaf for part in self.parts for leaf in part.plan.leaves)
        self.leaves = tuple(dict.fromkeys((*raw.leaves, *ruled)))
        self.rule_ids = frozenset(part.rule_id for part in self.parts)
        self.approximate = any(part.target.within for part in self.parts)
        steps = self.times.steps()
        self.splits = not all(not part.gaps or part.covered(steps).all() for part in self.parts)
        self.reads = () if self.splits or not substitution.answers_all(self.parts) else ruled

    def leaves_at(self, steps: Ints) -> tuple[Leaf, ...]:
        return self.raw.leaves_at(steps)

    def payload(self, steps: Ints, max_samples: int) -> bytes:
        raise Bug("cannot push down a query that rules answer: its parts are")

    def evaluate(self, steps: Ints, source: SeriesSource, check: Check, max_samples: int) -> Evaluated:
        active = [part for part in self.parts if not part.gaps or part.covered(steps).all()]
        if not active:
            return evaluated(self.raw, steps, source, check, max_samples)
        found = self._substitution.evaluate(active, steps, source, check, max_samples)
        for within in dict.fromkeys(part.target.within for part in active if part.target.within):
            found.notes.approximate_by_rule(within, 0)
        return found

    def notes_of(self, document: Mapping[str, Any]) -> Annotations:
        return self.raw.notes_of(document)

    def groups(self, most: int, from_ms: int | None = None) -> list[Ints]:
        """Also cut where a rule begins or ends to have all rows."""
        found = super().groups(most, from_ms)
        if not self.splittable or not self._substitution.cuts or not self.splits:
            return found
        cut = [piece for steps in found for piece in self._cut(steps)]
        return cut if len(cut) <= len(found) + _MAX_STRETCHES else found

    def _cut(self, steps: Ints) -> list[Ints]:
        covered = np.stack([part.covered(steps) for part in self.parts])
        edges = np.flatnonzero((covered[:, 1:] != covered[:, :-1]).any(axis=0)) + 1
        return np.split(steps, edges)
