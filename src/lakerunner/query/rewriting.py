"""How the parts that run a query reach the rules that may answer it, without knowing any language."""

from __future__ import annotations

import functools
import importlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lakerunner.index.database import Database
from lakerunner.index.rule_catalog import StoredRule, live_rules
from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import Segment
from lakerunner.query.language import Plan, StepPlan
from lakerunner.query.plan.coverage import CoverageWant, Gap
from lakerunner.query.plan.leaf import Leaf

#: By name and not by import: whoever rewrites knows the languages, and whoever runs queries does not.
_MODULE = "lakerunner.query.rules.rewriter"
#: How long the rules of an org are taken as they were. A retired one is noticed by its coverage, with every query.
RULES_TTL_S = 2.0
_MAX_ORGS = 1_024


class Note(Protocol):
    """What became of a part of a query and a rule."""

    def to_json(self) -> dict[str, Any]: ...


class Considered(Protocol):
    """A plan, and the rules that answer parts of it if they have all rows."""

    @property
    def leaves(self) -> tuple[Leaf, ...]: ...
    @property
    def wants(self) -> tuple[CoverageWant, ...]: ...
    def decided(
        self, gaps: Mapping[CoverageWant, Sequence[Gap]], segments: Sequence[Segment]
    ) -> tuple[Plan, Sequence[Note]]:
        """The plan with the rules that have all rows of these segments, and what became of the others."""
        ...


class Ruled(StepPlan):
    """A plan that rules answer, and the one that answers without them.

    A class and not a protocol: to test for a protocol is to read all its properties, several times for every query.
    """

    raw: StepPlan
    rule_ids: frozenset[int]
    #: Whether the answer is within a stated error only, as the query allowed.
    approximate: bool
    #: Whether some steps are read raw.
    splits: bool
    #: What is read where rules answer everything; empty where raw rows are read too.
    reads: tuple[Leaf, ...]


class Rewriter(Protocol):
    def consider_stored(self, plan: Plan, rules: Sequence[StoredRule]) -> Considered | None:
        """What the rules could answer of the plan; None if there is nothing to compare."""
        ...


@functools.cache
def rewriter() -> Rewriter:
    found: Rewriter = importlib.import_module(_MODULE).REWRITER
    return found


class LiveRules:
    """The live rules of orgs, asked of the index every few seconds. Safe to share between threads."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[uuid.UUID, tuple[float, tuple[StoredRule, ...]]] = {}

    def of_org(self, org_id: uuid.UUID) -> Sequence[StoredRule]:
        """The rules of the org, the same tuple as long as they stay the same.

        None while the index does not answer, because no coverage is known then either.
        """
        now_s = self._clock()
        with self._lock:
            known = self._known.get(org_id)
        if known is not None and now_s - known[0] < RULES_TTL_S:
            return known[1]
        try:
            rules = tuple(self._database.read(lambda tx: live_rules(tx, org_id)))
        except Unavailable:
            return ()
        if known is not None and known[1] == rules:
            # What is kept for rules is known by the identity of their tuple.
            rules = known[1]
        with self._lock:
            if len(self._known) >= _MAX_ORGS:
                self._known.clear()
            self._known[org_id] = now_s, rules
        return rules

    def forget(self, org_id: uuid.UUID) -> None:
        with self._lock:
            self._known.pop(org_id, None)
