"""What ingest derives from spans in one pass: the samples of the built-in rules, and halves of calls for later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakerunner.model.half_call import HALF
from lakerunner.model.labels import attribute_column
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from lakerunner.pipeline.derive.edges import calls_of
from lakerunner.pipeline.derive.evaluate import Derived, evaluate
from lakerunner.pipeline.derive.span_rules import SERVICE_GRAPH, span_metrics
from lakerunner.runtime.settings import DeriveSettings


@dataclass(frozen=True, slots=True)
class DeriveOptions:
    """What a task derives. Without a slot, nothing: see `evaluate.py`."""

    slot: int | None = None
    span_metrics: bool = True
    #: Attributes that are labels of the span metrics too.
    dimensions: tuple[str, ...] = ()
    service_graph: bool = True
    #: Columns of attributes that name the service which a client called.
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DerivedFromSpans:
    made: tuple[Derived, ...]
    #: Halves of calls whose other side is not among these spans.
    halves: pa.Table


def dimensions_of(settings: DeriveSettings) -> tuple[str, ...]:
    """Attributes that are labels of the span metrics too."""
    return _names(settings.dimensions)


def peer_columns(settings: DeriveSettings) -> tuple[str, ...]:
    """Columns of attributes that name the service which a client called."""
    return tuple(attribute_column("attr", name) for name in _names(settings.peer_attributes))


def _names(text: str) -> tuple[str, ...]:
    """
    >>> _names("a, b,")
    ('a', 'b')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def derive_from_spans(spans: pa.Table, options: DeriveOptions, series_key: bytes) -> DerivedFromSpans:
    if options.slot is None or not spans.num_rows:
        return DerivedFromSpans((), HALF.empty_table())
    found: list[Derived | None] = []
    halves = HALF.empty_table()
    if options.span_metrics:
        times = spans.column("start_timestamp").cast(pa.int64()).to_numpy()
        found.append(evaluate([span_metrics(options.dimensions)], spans, times, options.slot, series_key))
    if options.service_graph:
        edges, halves = calls_of(spans, options.peers)
        found.append(edge_metrics(edges, options.slot, series_key))
    return DerivedFromSpans(tuple(each for each in found if each is not None), halves)


def edge_metrics(edges: pa.Table, slot: int, series_key: bytes) -> Derived | None:
    if not edges.num_rows:
        return None
    return evaluate([SERVICE_GRAPH], edges, edges.column("start_ns").to_numpy(), slot, series_key)


def metric_tables(made: Sequence[Derived]) -> dict[str, pa.Table] | None:
    """The tables of a part of metrics; None if there is nothing."""
    if not made:
        return None
    return {
        SAMPLES.suffix: pa.concat_tables([each.samples for each in made]),
        SERIES.suffix: pa.concat_tables([each.series for each in made]),
    }
