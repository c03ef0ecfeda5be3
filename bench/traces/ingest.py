"""CPU of ingest per span, without derivation and with span metrics and service map, with its pairing and commit.

Traces of five calls lie in one work item each, or in two, so that one call of each is paired in the index.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.otlp import traces
from bench.served.report import Figure, Report
from bench.traces.lake import config_of
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, TracesData

from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.derivation import next_slots
from lakerunner.index.orgs import DEFAULT_ORG_ID, create_org
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.raw_object import CONTENT_VERSION, RawObject, content_hash
from lakerunner.model.signals.traces import TRACES
from lakerunner.pipeline.derive.evaluate import SLOTS
from lakerunner.pipeline.derive.spans import DeriveOptions
from lakerunner.pipeline.ingest.complete import complete
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.pipeline.stage import Item
from lakerunner.store.open import open_store

_figure = partial(Figure, "traces")
_PEER_WAIT_S = 120.0


def measure_ingest(
    database: Database, index_cpu_s: Callable[[], float], report: Report, folder: Path, spans: int, rounds: int
) -> None:
    def cpu_s() -> float:
        return time.process_time() + index_cpu_s()

    for split, name in ((False, "calls within an item"), (True, "one call in five across items")):
        items = _items(folder, spans, split=split)
        _run(database, folder, items, derives=True)
        plain: list[float] = []
        derived: list[float] = []
        for _ in range(rounds):
            for spent, derives in ((plain, False), (derived, True)):
                before = cpu_s()
                rows = _run(database, folder, items, derives=derives)
                spent.append((cpu_s() - before) / rows * 1e6)
        case = f"ingest with span metrics and service map, {name}, CPU per span"
        report.tell(_figure(case, min(derived), "us", "ingest without", min(plain), 1.3))


def _items(folder: Path, spans: int, *, split: bool) -> list[tuple[RawObject, ...]]:
    """Two work items. If split: the first services of every trace, then the others, which the last of those calls."""
    config = config_of(folder)
    store = open_store(config)
    items: tuple[list[RawObject], list[RawObject]] = ([], [])
    for number in range(max(1, spans // 10_000)):
        whole = TracesData.FromString(traces(number, 10_000))
        for place, resource in enumerate(whole.resource_spans):
            for span in resource.scope_spans[0].spans:
                span.kind = Span.SPAN_KIND_SERVER if place % 2 else Span.SPAN_KIND_CLIENT
        cut = len(whole.resource_spans) // 4 * 2 + 1
        parts: tuple[Sequence[ResourceSpans], ...] = (whole.resource_spans[:cut], whole.resource_spans[cut:])
        if not split:
            parts = (whole.resource_spans, ()) if number % 2 else ((), whole.resource_spans)
        for item, part in zip(items, parts, strict=True):
            if not part:
                continue
            body = TracesData(resource_spans=part).SerializeToString()
            key = f"otel-raw/default/ingested/{uuid.uuid4()}.binpb"
            store.put(key, body)
            version = CONTENT_VERSION + content_hash(body).hexdigest()
            item.append(RawObject(DEFAULT_ORG_ID, "bench", TRACES.name, config.url, key, version, len(body)))
    return [tuple(item) for item in items]


def _run(database: Database, folder: Path, items: Sequence[tuple[RawObject, ...]], *, derives: bool) -> int:
    """Ingest the items as the stage does, without Spark. Nothing stays but their segments, which nobody reads."""
    config = config_of(folder)
    store, rows = open_store(config), 0
    with database.transaction() as tx:
        # An org of its own: its calls find no halves of another round.
        org_id = create_org(tx, f"ingest-{uuid.uuid4()}").org_id
    for objects in items:
        item_id = uuid.uuid4()
        slots: list[int | None] = [None, None]
        if derives:
            with database.transaction() as tx:
                slots = list(next_slots(tx, 2, SLOTS))
        task = IngestTask(item_id, org_id, "ingested", TRACES.name, objects, {config.url: config}, config,
                          derive=DeriveOptions(slots[0]))  # fmt: skip
        made = run_task(task)
        if made.error is not None:
            raise made.error
        item = Item(item_id, org_id, TRACES.name, objects, len(objects), 0.0)
        completion = complete(database, store, item, [made], slots[1], task.options.metrics.series_key, _PEER_WAIT_S)
        with database.transaction() as tx:
            create_item(tx, WorkItem(item_id, "ingest", org_id, TRACES.name))
        result = ItemResult(item_id, made=[*made.segments, *completion.segments], derivation=completion.derivation)
        assert commit_item(database, result) is Outcome.COMMITTED
        rows += sum(segment.row_count for segment in made.segments if segment.signal == TRACES.name)
    return rows
