"""One question to both engines; a question that they answer differently is made as small as is cheap."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.model.errors import LakeError
from lakerunner.query.promql.ast import Aggregate, Call, Expr, MatrixSelector, String, Subquery, children, unwrapped
from lakerunner.query.promql.parser import parse
from lakerunner.query.promql.printer import print_expr
from lakerunner.query.series.block import SAME_LABELSET
from tests.differential.mutants import mutant
from tests.differential.promql.answers import Answer, difference, own_answer, own_refusal, peer_answer
from tests.differential.promql.grammar import Grammar
from tests.differential.promql.peer import Peer
from tests.differential.promql.samples import END_MS, SCRAPE_MS, START_MS
from tests.query.engine import Engine

#: Functions whose result has an order. Of equal values any order will do: the values are compared, not the labels.
_SORTS = frozenset(["sort", "sort_desc", "sort_by_label", "sort_by_label_desc"])

#: Up to so many series are sorted in a way of which the result can be foretold.
_FEW = 12

#: How often Prometheus is asked again where it seems to disagree.
_TRIES = 4

#: Not NaN: Prometheus takes `offset NaN` for an offset beyond all time, we refuse it.
_FOREIGN = (
    *("(", ")", "[", "]", "{", "}", ",", "=", "=~", "@", ":", "-", "+", "^", "</", "==", "'a'", "`b`", '"c"', "#x\n"),
    *("by", "without", "on", "ignoring", "group_left", "bool", "offset", "smoothed", "anchored", "fill", "and", "or"),
    *("sum", "rate", "start()", "5m", "1e", "0x1f", "Inf", "1_000", "0.5", "08", "1h30m", "5m1h", "__name__"),
)

#: Aggregations that may take one series or another: nothing to shrink to.
_ANY_OF_EQUALS = frozenset(["topk", "bottomk", "limitk"])


@dataclass(frozen=True, slots=True)
class Question:
    expr: str
    start_ms: int
    end_ms: int
    #: 0 for an instant query.
    step_ms: int
    #: Whether only their acceptance is compared: an expression by accident may ask for what differs by design.
    mutated: bool = False

    def __str__(self) -> str:
        if not self.step_ms:
            return f"{self.expr}   at {self.start_ms / 1000:.3f}"
        return (
            f"{self.expr}   from {self.start_ms / 1000:.3f} to {self.end_ms / 1000:.3f} step {self.step_ms / 1000:g}s"
        )


@dataclass(frozen=True, slots=True)
class Disagreement:
    question: Question
    reason: str
    shrunk: Question
    shrunk_reason: str

    def __str__(self) -> str:
        out = f"{self.question}\n    {self.reason}"
        if self.shrunk != self.question:
            out += f"\n  already\n  {self.shrunk}\n    {self.shrunk_reason}"
        return out


@dataclass(frozen=True, slots=True)
class Verdict:
    #: What Prometheus did: answered, answered with nothing (empty), refused, or answered by chance.
    kind: str
    disagreement: Disagreement | None = None


def question(seed: int, number: int) -> Question:
    """The same for the same numbers, whatever came before: any one of a run can be asked again alone."""
    chance = random.Random(f"{seed}/{number}")
    expr = Grammar(chance).expression()
    mutated = chance.random() < 0.15
    if mutated:
        expr = mutant(expr, chance, _FOREIGN)
    start_ms = chance.randrange(START_MS - 2 * SCRAPE_MS, END_MS + 60_000, chance.choice([500, SCRAPE_MS]))
    if chance.random() < 0.5:
        return Question(expr, start_ms, start_ms, 0, mutated)
    step_ms = chance.choice([15_000, 30_000, 60_000, 7_000, 100_000])
    end_ms = start_ms + chance.randint(0, 8) * step_ms + chance.choice([0, 500])
    return Question(expr, start_ms, end_ms, step_ms, mutated)


@dataclass(slots=True)
class Both:
    peer: Peer
    engine: Engine
    #: Samples of answers, compared one by one.
    values: int = 0

    def ask(self, asked: Question) -> Verdict:
        own = self._own(asked)
        peer = self._peer(asked)
        kind = "refused" if peer.error else "answered" if peer.cells else "empty"
        self.values += len(peer.cells)
        reason = self._difference(asked, peer, own)
        if reason is None:
            return Verdict(kind)
        if self._is_chance(asked, peer, own):
            return Verdict("by chance")
        shrunk, shrunk_reason = asked, reason
        for smaller in _smaller(asked):
            found = self._difference(smaller, self._peer(smaller), self._own(smaller))
            if found is not None:
                shrunk, shrunk_reason = smaller, found
                break
        return Verdict(kind, Disagreement(asked, reason, shrunk, shrunk_reason))

    def _is_chance(self, asked: Question, peer: Answer, own: Answer) -> bool:
        """Whether Prometheus disagrees with itself: in range queries it takes series in an order that changes."""
        again = [self._peer(asked) for _ in range(_TRIES)]
        return any(self._difference(asked, peer, one) or not self._difference(asked, one, own) for one in again)

    def _difference(self, asked: Question, peer: Answer, own: Answer) -> str | None:
        if _float_beside_histogram(asked, own):
            return None
        if asked.mutated and not own.kind.startswith("crash"):
            return difference(Answer(error=peer.error and "no"), Answer(error=own.error and "no"))
        return difference(peer, own, _is_ordered(asked, peer))

    def _peer(self, asked: Question) -> Answer:
        if asked.step_ms:
            return peer_answer(self.peer.range(asked.expr, asked.start_ms, asked.end_ms, asked.step_ms))
        return peer_answer(self.peer.instant(asked.expr, asked.start_ms))

    def _own(self, asked: Question) -> Answer:
        try:
            if asked.step_ms:
                return own_answer(self.engine.range(asked.expr, asked.start_ms, asked.end_ms, asked.step_ms))
            return own_answer(self.engine.instant(asked.expr, asked.start_ms))
        except LakeError as reason:
            return own_refusal(reason)
        except Exception as reason:  # noqa: BLE001 - a crash of the engine is a finding, not the end of the run
            return Answer(kind=f"crash ({type(reason).__name__}: {reason})")


def _float_beside_histogram(asked: Question, own: Answer) -> bool:
    """Two series that have become the same are an error, but Prometheus does not notice it of a float and a histogram.

    It gives one of the two or both. We refuse, as it does where both are of one kind. Only `mixed` and `hybrid` are of
    both kinds, and what several names together select.
    """
    return SAME_LABELSET in own.error and any(name in asked.expr for name in ("mixed", "hybrid", "__name__"))


def _is_ordered(asked: Question, peer: Answer) -> bool:
    if asked.step_ms:
        return False
    try:
        expr = unwrapped(parse(asked.expr))
    except LakeError:
        return False
    if not isinstance(expr, Call) or expr.name not in _SORTS:
        return False
    # Where only some series have the label, Prometheus' comparison is no order; of many its result depends on chance.
    names = [arg.value for arg in expr.args[1:] if isinstance(arg, String)]
    return len(peer.cells) <= _FEW or all(labels.get(name) for labels, _ in peer.cells for name in names)


def _smaller(asked: Question) -> Iterator[Question]:
    """The sub-expressions that are queries of their own, the shortest first."""
    try:
        whole = parse(asked.expr)
    except LakeError:
        return
    parts = [part for part in _parts(whole) if not isinstance(part, String | MatrixSelector | Subquery)]
    texts = {print_expr(part) for part in parts if not (isinstance(part, Aggregate) and part.op in _ANY_OF_EQUALS)}
    for text in sorted(texts, key=lambda text: (len(text), text)):
        if len(text) < len(asked.expr):
            yield Question(text, asked.start_ms, asked.end_ms, asked.step_ms, asked.mutated)


def _parts(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in children(expr):
        yield from _parts(child)
