"""Two answers in one form, and whether they are the same."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lakerunner.model.errors import LakeError
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.results import MatrixResult, QueryResult, ScalarResult, StringResult, VectorResult
from lakerunner.query.syntax.errors import ParseError

#: (lower bound, upper bound, count) of every bucket that is not empty.
Buckets = tuple[tuple[float, float, float], ...]
TOLERANCE = 1e-9
#: What is left of a difference of two equal numbers is noise; no value of the samples is this small but 1e-300.
NOISE = 1e-9


@dataclass(frozen=True, slots=True)
class HistogramAnswer:
    count: float
    sum: float
    buckets: Buckets

    def __str__(self) -> str:
        return (
            f"{{count:{self.count:g} sum:{self.sum:g} {' '.join(f'({a:g},{b:g}]:{n:g}' for a, b, n in self.buckets)}}}"
        )


Cell = float | HistogramAnswer


@dataclass(frozen=True, slots=True)
class Answer:
    #: Of the error; empty where there is an answer.
    error: str = ""
    #: What kind of value; the same expression must give the same.
    kind: str = ""
    #: By label set and time in milliseconds, in the order of the answer.
    cells: dict[tuple[LabelSet, int], Cell] = field(default_factory=dict)
    notes: frozenset[str] = frozenset()


def peer_answer(body: dict[str, Any]) -> Answer:
    if body["status"] != "success":
        return Answer(error=_few_names(body["error"].removeprefix('invalid parameter "query": ')))
    kind, result = body["data"]["resultType"], body["data"]["result"]
    notes = frozenset(_loose(text) for text in [*body.get("warnings", ()), *body.get("infos", ())])
    if kind in ("scalar", "string"):
        value = float(result[1]) if kind == "scalar" else 0.0
        return Answer(kind=kind, cells={(LabelSet(()), _ms(result[0])): value}, notes=notes)
    cells: dict[tuple[LabelSet, int], Cell] = {}
    for series in result:
        labels = LabelSet.of(series["metric"])
        for at, text in [*series.get("values", ()), *([series["value"]] if "value" in series else ())]:
            cells[labels, _ms(at)] = float(text)
        for at, shown in [*series.get("histograms", ()), *([series["histogram"]] if "histogram" in series else ())]:
            cells[labels, _ms(at)] = _peer_histogram(shown)
    return Answer(kind=kind, cells=cells, notes=notes)


def own_answer(result: QueryResult) -> Answer:
    notes = frozenset(_loose(text) for text in [*result.warnings, *result.infos])
    value = result.value
    if isinstance(value, ScalarResult):
        return Answer(kind="scalar", cells={(LabelSet(()), value.time_ms): value.value}, notes=notes)
    if isinstance(value, StringResult):
        return Answer(kind="string", cells={(LabelSet(()), value.time_ms): 0.0}, notes=notes)
    cells: dict[tuple[LabelSet, int], Cell] = {}
    if isinstance(value, VectorResult):
        for labels, number, histogram in zip(value.labels, value.values.tolist(), value.histograms, strict=True):
            cells[labels, value.time_ms] = number if histogram is None else _own_histogram(histogram)
        return Answer(kind="vector", cells=cells, notes=notes)
    assert isinstance(value, MatrixResult)
    for one in value:
        for at, number in zip(one.timestamps_ms.tolist(), one.values.tolist(), strict=True):
            cells[one.labels, at] = number
        for at, histogram in zip(one.histogram_timestamps_ms.tolist(), one.histograms, strict=True):
            cells[one.labels, at] = _own_histogram(histogram)
    return Answer(kind="matrix", cells=cells, notes=notes)


def own_refusal(reason: LakeError) -> Answer:
    if isinstance(reason, ParseError):
        return Answer(error=f"{reason.where}: parse error: {reason.reason}")
    return Answer(error=_few_names(reason.message))


def difference(peer: Answer, own: Answer, ordered: bool = False) -> str | None:
    """What differs first, in words; None where nothing does."""
    if peer.error or own.error:
        return _refusals(peer, own)
    if peer.kind != own.kind:
        return f"Prometheus gives a {peer.kind}, we a {own.kind}"
    for labels, at in peer.cells.keys() - own.cells.keys():
        return f"only Prometheus has {labels} at {at}: {peer.cells[labels, at]} (it {_count(peer)}, we {_count(own)})"
    for labels, at in own.cells.keys() - peer.cells.keys():
        return f"only we have {labels} at {at}: {own.cells[labels, at]} (we {_count(own)}, it {_count(peer)})"
    for (labels, at), theirs in peer.cells.items():
        if not same_cell(theirs, own.cells[labels, at]):
            return f"{labels} at {at}: Prometheus {theirs}, we {own.cells[labels, at]}"
    if ordered and not all(map(same_cell, peer.cells.values(), own.cells.values())):
        return f"another order: Prometheus {[*peer.cells.values()]}, we {[*own.cells.values()]}"
    return _messages(peer, own)


def _refusals(peer: Answer, own: Answer) -> str | None:
    """Ours may say more, where it says what could not be done."""
    if peer.error and own.error and peer.error in own.error:
        return None
    return f"Prometheus: {peer.error or _count(peer)}; we: {own.error or own.kind + ' of ' + _count(own)}"


def _messages(peer: Answer, own: Answer) -> str | None:
    lines = [f"only Prometheus says {text}" for text in sorted(peer.notes - own.notes)]
    lines += [f"only we say {text}" for text in sorted(own.notes - peer.notes)]
    return "\n    ".join(lines) or None


def same_cell(left: Cell, right: Cell) -> bool:
    if isinstance(left, HistogramAnswer) and isinstance(right, HistogramAnswer):
        return (
            _close(left.count, right.count)
            and _close(left.sum, right.sum)
            and len(left.buckets) == len(right.buckets)
            and all(
                _close(a, b)
                for one, two in zip(left.buckets, right.buckets, strict=True)
                for a, b in zip(one, two, strict=True)
            )
        )
    return isinstance(left, float) and isinstance(right, float) and _close(left, right)


def _close(left: float, right: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    if left == right:
        return True
    return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=NOISE)


def _count(answer: Answer) -> str:
    return f"{len(answer.cells)} samples"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _peer_histogram(shown: dict[str, Any]) -> HistogramAnswer:
    """Buckets of NaN are left out: they are empty ones of the chunk's layout, multiplied by infinity."""
    shown_buckets = [(float(low), float(high), float(count)) for _, low, high, count in shown.get("buckets", ())]
    buckets = sorted(one for one in shown_buckets if not math.isnan(one[2]))
    return HistogramAnswer(float(shown["count"]), float(shown["sum"]), tuple(buckets))


def _own_histogram(histogram: Histogram) -> HistogramAnswer:
    lower, upper, count = histogram.all_buckets()
    counted = ~np.isnan(count) & (count != 0)
    buckets = sorted(zip(lower[counted].tolist(), upper[counted].tolist(), count[counted].tolist(), strict=True))
    return HistogramAnswer(histogram.count, histogram.sum, tuple(buckets))


def _few_names(error: str) -> str:
    """Without what tells the series of a match group: which come first may be a matter of chance."""
    named = re.sub(r"operation: \[\{.*\}\];", "operation: two series;", error)
    if named == error:
        return error
    return re.sub(r'="(?:[^"\\]|\\.)*"', "", named)


def _loose(text: str) -> str:
    """Without the number of samples that needed fixing: in a range query Prometheus counts most of them many times."""
    return re.sub(r"over \d+ samples", "over some samples", text)
