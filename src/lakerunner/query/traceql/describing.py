"""Describes found traces as Tempo's API does: JSON texts, made on columns, of all traces of a piece at once.

A distinct value is written once; texts of spans are joined to those of sets, and these to those of traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.language import Check
from lakerunner.query.scan.rows.conditions.id_runs import Ids
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.conditions import satisfying
from lakerunner.query.traceql.fields import INTRINSICS, SERVICE_NAME, level_of
from lakerunner.query.traceql.literals import duration_text
from lakerunner.query.traceql.shown import Shown, shown_fields
from lakerunner.query.traceql.spans import Spans
from lakerunner.query.traceql.spansets import PipelineRun, SpanSets
from lakerunner.query.traceql.values import ARRAY, BOOL, DURATION, FLOAT, INT, NIL, Mask, Values, from_python

NO_ROOT = "<root span not yet received>"
_NS_PER_MS = 1_000_000
#: Texts of more spans are made in several turns: Arrow's texts have at most 2 GiB, and a reader may leave.
_MOST_SPANS = 100_000
_NAME = ast.Intrinsic("name")
#: Ids of the link of a span that has none, where they are selected, as Tempo shows them.
_NO_LINK: dict[ast.Field, ast.Literal] = {
    ast.Intrinsic("link:traceID"): ast.Literal(ast.STRING, ""),
    ast.Intrinsic("link:spanID"): ast.Literal(ast.STRING, "0" * 16),
}
_HEX = np.frombuffer(b"".join(b"%02x" % each for each in range(256)), np.uint8).reshape(256, 2)


class Descriptions:
    """Describes traces and their sets. Of each set, so many spans; without sets, only the traces."""

    def __init__(
        self,
        pipeline: ast.Pipeline,
        spans: Spans,
        run: PipelineRun,
        sets: SpanSets,
        spans_per_set: int,
        *,
        with_sets: bool,
    ) -> None:
        self._spans, self._sets, self._per_set, self._with_sets = spans, sets, spans_per_set, with_sets
        self._first_row = np.searchsorted(sets.set_of, np.arange(len(sets) + 1))
        self._by_trace = np.argsort(sets.trace, kind="stable")
        self._first_set = np.searchsorted(sets.trace[self._by_trace], np.arange(len(spans.trace_ids) + 1))
        self._service, self._name = spans.values(SERVICE_NAME), spans.values(_NAME)
        # As in Tempo: sets by the name of the root say it themselves.
        self._is_root_named = ast.GroupBy(ast.Intrinsic("rootName")) not in pipeline.stages
        fields = shown_fields(pipeline) if with_sets else []
        self._shown = [(shown, *_visible(shown, run, spans)) for shown in fields if _is_described(shown)]

    def texts(self, traces: Ints, check: Check) -> list[str]:
        """The description of each of the traces."""
        found: list[str] = []
        sizes = np.cumsum(np.diff(self._spans.first)[traces])
        begin = 0
        while begin < len(traces):
            before = int(sizes[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(sizes, before + _MOST_SPANS, side="right")), begin + 1)
            check()
            found += self._texts(traces[begin:end]).to_pylist()
            begin = end
        return found

    def _texts(self, traces: Ints) -> pa.Array:
        spans = self._spans
        root = spans.root[traces]
        start_ns = spans.trace_start_ns[traces]
        parts: list[pa.Array | str] = [
            '{"traceID":',
            _quoted(_short_ids(spans.trace_ids.take(traces))),
            ',"rootServiceName":',
            _rooted(self._service, root, NO_ROOT),
            ',"rootTraceName":',
            _rooted(self._name, root if self._is_root_named else np.full_like(root, -1), ""),
            ',"startTimeUnixNano":"',
            _digits(start_ns),
            '","durationMs":',
            _digits(np.maximum(spans.trace_end_ns[traces] - start_ns, 0) // _NS_PER_MS),
        ]
        if self._with_sets:
            places, counts = _spread(self._first_set, traces)
            sets = self._set_texts(self._by_trace[places])
            first = np.cumsum(counts) - counts
            parts += [',"spanSet":', sets.take(pa.array(first)), ',"spanSets":[', _joined(sets, counts)]
            parts += ['],"serviceStats":{', self._services(traces), "}"]
        return _written([*parts, "}"])

    def _services(self, traces: Ints) -> pa.Array:
        """Spans and errors of each service of the traces."""
        rows, counts = _spread(self._spans.first, traces)
        service, first = self._service.take(rows).groups()
        names = _quoted(pa.array([str(self._service.plain(int(row))[1]) for row in rows[first]], pa.string()))
        of_trace = np.repeat(np.arange(len(traces)), counts)
        keys, of_key, spans = np.unique(of_trace * len(first) + service, return_inverse=True, return_counts=True)
        failed = np.bincount(of_key[self._spans.status_is_error()[rows]], minlength=len(keys))
        errors = pc.if_else(pa.array(failed > 0), _written([',"errorCount":', _digits(failed)]), "")
        texts = _written([names.take(pa.array(keys % len(first))), ':{"spanCount":', _digits(spans), errors, "}"])
        return _joined(texts, np.bincount(keys // len(first), minlength=len(traces)))

    def _set_texts(self, sets: Ints) -> pa.Array:
        places, counts = _spread(self._first_row, sets, self._per_set)
        spans = _joined(self._span_texts(self._sets.rows[places]), counts)
        matched = _digits(np.diff(self._first_row)[sets])
        parts: list[pa.Array | str] = ['{"spans":[', spans, '],"matched":', matched]
        if self._sets.attributes:
            pairs = [_pairs(values.take(sets), _writer(name)) for name, values in self._sets.attributes]
            parts += [',"attributes":[', _listed(pairs), "]"]
        return _written([*parts, "}"])

    def _span_texts(self, rows: Ints) -> pa.Array:
        spans = self._spans
        parts: list[pa.Array | str] = [
            '{"spanID":',
            _quoted(pc.fill_null(spans.span_ids_at(rows), "")),
            ',"startTimeUnixNano":"',
            _digits(spans.start_ns[rows]),
            '","durationNanos":"',
            _digits(spans.duration_ns[rows]),
            '"',
        ]
        attributes = []
        for shown, visible, values in self._shown:
            place = np.flatnonzero(visible[rows])
            texts = _pairs(values.take(rows[place]), _writer_of(shown))
            spread = np.full(len(rows), -1, np.int64)
            spread[place] = np.arange(len(place))
            texts = texts.take(pa.array(spread, mask=spread < 0))
            if shown.field == _NAME:
                parts.append(pc.fill_null(texts, ""))
            else:
                attributes.append(texts)
        if attributes:
            listed = _listed(attributes)
            parts.append(pc.if_else(pc.equal(listed, ""), "", _written([',"attributes":[', listed, "]"])))
        return _written([*parts, "}"])


def _is_described(shown: Shown) -> bool:
    return shown.field == _NAME or not isinstance(shown.field, ast.Intrinsic) or INTRINSICS[shown.field.name].shown


def _visible(shown: Shown, run: PipelineRun, spans: Spans) -> tuple[Mask, Values]:
    """Which spans show a field, and its value for each of them."""
    where = None if shown.where is None else run.conditions.mask(shown.where)
    if level_of(shown.field) in ("event", "link"):
        values = run.conditions.last_found(shown.field, shown.where)
        if shown.where is None and shown.field in _NO_LINK:
            values = values.or_else(Values.of_literal(_NO_LINK[shown.field]).spread(len(spans)))
    else:
        values = run.conditions.values(shown.field)
    return (values.kind != NIL if where is None else where), values


# -- texts of values -------------------------------------------------------------------------------------------------


def _pairs(values: Values, write: Callable[[Values, int], str | None]) -> pa.Array:
    """What is written of each value; each distinct one is written once."""
    if not len(values):
        return pa.array([], pa.string())
    codes, first = values.groups()
    return pa.array([write(values, row) for row in first.tolist()], pa.string()).take(pa.array(codes))


def _writer(name: str) -> Callable[[Values, int], str]:
    return lambda values, row: _json({"key": name, "value": any_value(*values.plain(row))})


def _writer_of(shown: Shown) -> Callable[[Values, int], str | None]:
    if shown.field == _NAME:
        return lambda values, row: ',"name":' + _json(values.plain(row)[1])
    write = _writer(shown.name)

    def written(values: Values, row: int) -> str | None:
        """Of an array, the elements that were compared for."""
        if values.kind[row] != ARRAY:
            return write(values, row)
        items = orjson.loads(values.texts[values.code[row]])
        if shown.where is not None:
            keep = satisfying(shown.where, from_python(items)).tolist()
            items = [each for each, is_kept in zip(items, keep, strict=True) if is_kept]
        return write(from_python([items]), 0) if items else None

    return written


def any_value(kind: int, value: Any) -> dict[str, Any]:
    """A value as OTLP writes it in JSON. Nil is a text, as in Tempo's answers."""
    if kind == INT:
        return {"intValue": str(value)}
    if kind == FLOAT:
        if np.isfinite(value):
            return {"doubleValue": value}
        return {"doubleValue": "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if kind == BOOL:
        return {"boolValue": value}
    if kind == DURATION:
        return {"stringValue": duration_text(value)}
    if kind == ARRAY:
        kinds = {bool: BOOL, int: INT, float: FLOAT}
        items = [any_value(kinds.get(type(item), -1), item) for item in orjson.loads(value)]
        return {"arrayValue": {"values": items}}
    return {"stringValue": "nil" if kind == NIL else value}


def _json(document: Any) -> str:
    return orjson.dumps(document).decode()


# -- columns of texts ------------------------------------------------------------------------------------------------


def _spread(first: Ints, chosen: Ints, most: int | None = None) -> tuple[Ints, Ints]:
    """The members of the chosen ones, of which each has those from its first to the next one's; and how many each."""
    counts = np.diff(first)[chosen]
    if most is not None:
        counts = np.minimum(counts, most)
    ends = np.cumsum(counts)
    return np.arange(int(counts.sum())) + np.repeat(first[chosen] - (ends - counts), counts), counts


def _written(parts: Sequence[pa.Array | str]) -> pa.Array:
    """Texts one after the other."""
    return pc.binary_join_element_wise(*parts, "")


def _listed(columns: Sequence[pa.Array]) -> pa.Array:
    """The texts of each row with commas, without those that are missing."""
    # Arrow's own way to skip what is missing drops rows in which everything is.
    return pc.ascii_ltrim(_written([pc.fill_null(_written([",", each]), "") for each in columns]), characters=",")


def _joined(texts: pa.Array, counts: Ints) -> pa.Array:
    """So many neighbours with commas."""
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")


def _digits(numbers: Ints) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    """JSON of texts. Those of letters and digits need no escapes; of others, each distinct one is written once."""
    if pc.all(pc.ascii_is_alnum(texts), min_count=0).as_py():
        return _written(['"', texts, '"'])
    encoded = texts.dictionary_encode()
    return pa.array(list(map(_json, encoded.dictionary.to_pylist())), pa.string()).take(encoded.indices)


def _rooted(values: Values, root: Ints, otherwise: str) -> pa.Array:
    """The value of each root as JSON; where there is none or it is empty, something else."""
    found = values.take(np.where(root >= 0, root, 0)).only(root >= 0)
    return _pairs(found, lambda of, row: _json((of.plain(row)[1] or otherwise) if of.kind[row] != NIL else otherwise))


def _short_ids(ids: Ids) -> pa.Array:
    """Ids without their leading zeros."""
    if ids.odd:
        return pa.array([ids.text(row).lstrip("0") for row in range(len(ids))], pa.string())
    words = np.ascontiguousarray(np.stack([ids.high, ids.low], axis=1).astype(">u8")).view(np.uint8).reshape(-1)
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * 32
    digits = pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(_HEX[words].tobytes()))
    return pc.ascii_ltrim(digits, characters="0")
