"""One question to both servers, and whether their answers are the same."""

from __future__ import annotations

import http.client
import random
import re
from dataclasses import dataclass
from typing import Any

from tests.differential.logql.grammar import Grammar
from tests.differential.logql.recombined import Recombined
from tests.differential.logql.records import END_NS, SECONDS, START_NS
from tests.differential.mutants import mutant
from tests.query.logqltest.asking import Answer, Asker
from tests.query.logqltest.compare import query_difference, same_number
from tests.query.logqltest.suite import Case

_NS_PER_S = 1_000_000_000
#: Half a second off the grid of the records.
_HALF_NS = _NS_PER_S // 2
#: Tokens that come into a query by accident.
_FOREIGN = (
    *(
        "(",
        ")",
        "[5m]",
        "{",
        "}",
        ",",
        "=",
        "=~",
        "!=",
        "|",
        "|=",
        "|>",
        "@",
        "-",
        "+",
        "^",
        "==",
        "`b`",
        '"c"',
        "#x\n",
    ),
    *("by", "without", "on", "group_left", "bool", "offset", "and", "or", "json", "logfmt", "unwrap", "drop", "keep"),
    *("sum", "rate", "ip", "5m", "1e", "1_000", "0.5", "08", "1h30m", "5m1h", "3KB", "--strict", "x", "1", "vector"),
)
_CHOOSES = re.compile(r"\b(approx_)?(topk|bottomk)\b")
#: The share of queries with a broken token.
_MUTANTS = 0.1
#: How often Loki is asked again where it seems to disagree.
_TRIES = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    #: What Loki did: answered, answered with nothing (empty), refused, or answered by chance.
    kind: str
    disagreement: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    case: Case
    #: Whether only their acceptance is compared.
    mutated: bool

    def __str__(self) -> str:
        return " ".join(
            (self.case.shown(), *(f"{name}={self.case.params[name]}" for name in self.case.params if name != "query"))
        )


def question(seed: int, number: int) -> Question:
    """The same for the same numbers, whatever came before: any one of a run can be asked again alone."""
    chance = random.Random(f"{seed}/{number}")
    grammar = Grammar(chance)
    is_log = chance.random() < 0.5
    query = grammar.log_query() if is_log else grammar.metric_query(chance.choice([0, 1, 1, 2, 2]))
    mutated = chance.random() < _MUTANTS
    if mutated:
        query = mutant(query, chance, _FOREIGN)
    start_ns = START_NS + chance.randrange(SECONDS) * _NS_PER_S + _HALF_NS
    params: dict[str, Any] = {"query": query}
    if is_log:
        end_ns = min(start_ns + chance.choice([60, 300, 900]) * _NS_PER_S, END_NS + _HALF_NS)
        direction = chance.choice(["forward", "backward"])
        params |= {"start": start_ns, "end": end_ns, "limit": chance.choice([5, 40, 1000]), "direction": direction}
    elif chance.random() < 0.4:
        params["time"] = start_ns
    else:
        step_s = chance.choice([15, 30, 60, 7])
        end_ns = start_ns + (chance.randrange(12) * step_s + chance.choice([0, 3])) * _NS_PER_S
        params |= {"start": start_ns, "end": end_ns, "step": step_s}
    return _asking(f"{seed}/{number}", params, mutated)


def recombined_question(parts: Recombined, seed: int, number: int) -> Question:
    """A question made of the parts of recorded ones, likewise the same for the same numbers."""
    chance = random.Random(f"{seed}/{number}")
    query, recorded = parts.query(chance)
    mutated = chance.random() < _MUTANTS
    if mutated:
        query = mutant(query, chance, _FOREIGN)
    params = {name: value for name, value in recorded.items() if name != "kind"} | {"query": query}
    return _asking(f"{seed}/{number}", params, mutated)


def _asking(name: str, params: dict[str, Any], mutated: bool) -> Question:
    kind = "instant" if "time" in params else "range"
    path = "/loki/api/v1/query" if kind == "instant" else "/loki/api/v1/query_range"
    return Question(Case(name, "POST", path, params, {"kind": kind}), mutated)


@dataclass(slots=True)
class Both:
    loki: Asker
    own: Asker
    #: Entries and samples of answers, compared one by one.
    values: int = 0

    def ask(self, asked: Question) -> Verdict:
        own = self.own.ask(asked.case)
        try:
            peer = self.loki.ask(asked.case)
        except http.client.RemoteDisconnected:
            # Some queries make Loki panic, such as approx_topk over nothing.
            return Verdict("without an answer of Loki")
        reason = self._difference(asked, peer, own, categorized=False)
        if reason is None and not asked.mutated and peer.status == 200:
            again = self.loki.ask(asked.case, categorized=True), self.own.ask(asked.case, categorized=True)
            reason = self._difference(asked, *again, categorized=True)
        kind = "refused" if peer.status != 200 else "answered" if self._count(peer) else "empty"
        if reason is None:
            return Verdict(kind)
        if any(
            self._difference(asked, self.loki.ask(asked.case), own, categorized=False) is None for _ in range(_TRIES)
        ):
            return Verdict("by chance")
        return Verdict(kind, f"{asked}\n    {reason}")

    def _difference(self, asked: Question, peer: Answer, own: Answer, *, categorized: bool) -> str | None:
        if asked.mutated and own.status == 400 and "template" in own.text:
            # Loki removes a line_format that a metric query does not need, and never reads its template.
            return None
        if peer.status != 200 or own.status != 200:
            if (peer.status == 200) == (own.status == 200) and own.status < 500:
                return None
            return f"Loki: {_shown(peer)}; we: {_shown(own)}"
        if asked.mutated:
            return None
        field = "expect_categorized" if categorized else "expect"
        recorded = {**asked.case.recorded, field: peer.document["data"], "ordered": asked.case.is_ordered}
        recorded["tie_at_limit"] = _is_full(asked.case, peer.document["data"])
        if "rate_counter" in asked.case.shown():
            # Loki means to extrapolate, but mixes units: a few parts in a million.
            recorded["tolerance"] = 1e-5
        case = Case(asked.case.case_id, asked.case.method, asked.case.path, asked.case.params, recorded)
        reason = query_difference(case, own, field)
        if reason and _CHOOSES.search(case.shown()) and _same_values(peer.document["data"], own.document["data"]):
            # Of series with equal values, any may have been chosen.
            return None
        return reason and (_nearest(peer.document["data"], own.document["data"]) or reason)

    def _count(self, answer: Answer) -> int:
        data = answer.document["data"]
        if data["resultType"] == "scalar":
            return 1
        found = sum(len(each.get("values", [None])) for each in data["result"])
        self.values += found
        return found


def _is_full(case: Case, data: dict[str, Any]) -> bool:
    """Whether the limit may have cut between entries of one instant."""
    if data["resultType"] != "streams" or not data["result"]:
        return False
    return sum(len(stream["values"]) for stream in data["result"]) == int(case.params.get("limit", 100))


def _same_values(want: dict[str, Any], got: dict[str, Any]) -> bool:
    """Whether there are the same values at the same times, of whatever series."""
    if want["resultType"] not in ("matrix", "vector") or want["resultType"] != got["resultType"]:
        return False
    sides = (
        sorted(
            (float(time), float(value))
            for one in side["result"]
            for time, value in one.get("values", [one.get("value")])
        )
        for side in (want, got)
    )
    expected, received = sides
    return len(expected) == len(received) and all(
        one[0] == other[0] and same_number(one[1], other[1]) for one, other in zip(expected, received, strict=True)
    )


def _nearest(want: dict[str, Any], got: dict[str, Any]) -> str | None:
    """The first label set that only Loki has, and what is different in the most similar one that only we have."""
    if want["resultType"] != got["resultType"] or want["resultType"] == "scalar":
        return None
    expected, received = ([_labels(each) for each in side["result"]] for side in (want, got))
    missing = [labels for labels in expected if labels not in received]
    unexpected = [labels for labels in received if labels not in expected]
    counts = f"Loki has {len(expected)} label sets, we {len(received)}"
    if not missing:
        return f"{counts}; only we have {unexpected[0]}" if unexpected else None
    if not unexpected:
        return f"{counts}; only Loki has {missing[0]}"
    first = missing[0].items()
    near = max(unexpected, key=lambda labels: len(first & labels.items())).items()
    return f"{counts}; Loki has {dict(sorted(first - near))} where we have {dict(sorted(near - first))}"


def _labels(item: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = item["stream"] if "stream" in item else item["metric"]
    return labels


def _shown(answer: Answer) -> str:
    return "an answer" if answer.status == 200 else f"{answer.status} {answer.text[:300].strip()}"
