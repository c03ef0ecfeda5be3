"""What one Spark task of ingest does: read raw objects, decode, merge, sort, cut by hour, write, and report.

Nothing that a task writes is visible: it reports segments, and the driver's commit makes them live. So a task may die
or run twice at any point.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.decoded import Decoded
from lakerunner.formats.limits import Limits, refuse
from lakerunner.formats.options import Options
from lakerunner.formats.read import read_object
from lakerunner.model.errors import Conflict, LakeError
from lakerunner.model.half_call import packed
from lakerunner.model.raw_object import CONTENT_VERSION, ObjectOutcome, RawObject, content_hash, quarantined
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, TRACES, signal_named
from lakerunner.model.signals.metrics import SERIES
from lakerunner.model.time import MAX_TIME_NS
from lakerunner.pipeline.derive.evaluate import Derived
from lakerunner.pipeline.derive.rule_set import Evaluation, RuleEvaluation, RuleSet
from lakerunner.pipeline.derive.spans import DeriveOptions, derive_from_spans, metric_tables
from lakerunner.pipeline.executor_task import open_for_tasks, run_alone
from lakerunner.pipeline.repeats import with_repeats
from lakerunner.pipeline.split import merged, parts, skewed_rows
from lakerunner.pipeline.write_part import write_part
from lakerunner.runtime.crash import crash_point
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.requests import charged_to
from lakerunner.store.statistics import event_times_ns

#: Bytes of raw objects that may wait, fetched, for their turn to be decoded.
_FETCHED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Some or all objects of one work item, and everything that is needed to make segments of them."""

    item_id: uuid.UUID
    org_id: uuid.UUID
    collector: str
    signal: str
    objects: tuple[RawObject, ...]
    #: How to reach the buckets of the objects, by address, and the one that segments go to.
    sources: Mapping[str, StoreConfig]
    target: StoreConfig
    limits: Limits = field(default_factory=Limits)
    options: Options = field(default_factory=Options)
    types: AttributeTypes = field(default_factory=AttributeTypes)
    fetches: int = 8
    derive: DeriveOptions = field(default_factory=DeriveOptions)
    #: The rules of the org for this signal. They need a slot.
    rules: RuleSet | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task made of its objects."""

    item_id: uuid.UUID
    segments: tuple[Segment, ...] = ()
    objects: tuple[ObjectOutcome, ...] = ()
    #: Attribute columns of which the task was not given the type, with the type that it wrote.
    added_types: Mapping[str, str] = field(default_factory=dict)
    #: Rows that landed with an event time far from the present.
    skewed: int = 0
    error: LakeError | None = None
    #: Slot and interval of every derived sample.
    slots: tuple[tuple[int, int], ...] = ()
    #: Halves of calls whose other side is elsewhere (`derive/edges.py`), as an Arrow stream.
    halves: bytes = b""
    #: The version of the rules that were evaluated, and what they made of the rows, without the samples.
    rules_version: int = 0
    evaluation: Evaluation = field(default_factory=Evaluation)


@dataclass(frozen=True, slots=True)
class _Fetched:
    raw: RawObject
    body: bytes
    modified_ns: int


class _Superseded(LakeError):
    """The object was overwritten before it was read. The later version has an event and an item of its own."""


def run_task(task: IngestTask) -> TaskResult:
    """Run the task. An error that no object is to blame for is the result's `error`: it concerns this item alone."""
    return run_alone("ingest the item", lambda: _run(task), lambda error: TaskResult(task.item_id, error=error))


def _run(task: IngestTask) -> TaskResult:
    signal = signal_named(task.signal)
    decoded: list[Decoded] = []
    outcomes: list[ObjectOutcome] = []
    for outcome, one in _decode_all(task, signal):
        outcomes.append(outcome)
        if one is not None:
            decoded.append(one)
    crash_point("ingest_after_read")
    segments: list[Segment] = []
    added_types: dict[str, str] = {}
    skewed = 0
    slots: tuple[tuple[int, int], ...] = ()
    halves = b""
    evaluation = Evaluation()
    if decoded:
        tables = merged(signal, [one.tables for one in decoded], task.types)
        decoded.clear()
        if signal.rows.attributes:
            added_types = task.types.added(tables[signal.rows.suffix].schema, signal.rows.schema().names)
        target = open_for_tasks(task.target)
        now_ns = time.time_ns()
        skewed = skewed_rows(event_times_ns(signal, tables[signal.rows.suffix]), now_ns)
        rules = RuleEvaluation(task.rules) if task.rules is not None and task.derive.slot is not None else None
        for part in parts(signal, tables, now_ns):
            if signal is LOGS:
                part = {**part, signal.rows.suffix: with_repeats(part[signal.rows.suffix])}
            if rules is not None:
                rules.add(part[signal.rows.suffix], part.get(SERIES.suffix))
            version = _evaluated_version(task)
            segments.append(write_part(task.org_id, task.collector, signal, part, target, now_ns, version))
        spans = tables[signal.rows.suffix] if signal is TRACES else None
        made, slots, halves, evaluation = _derive(task, spans, rules, target, now_ns)
        segments += made
    crash_point("ingest_after_write")
    return TaskResult(
        task.item_id,
        tuple(segments),
        tuple(outcomes),
        added_types,
        skewed,
        slots=slots,
        halves=halves,
        rules_version=_evaluated_version(task),
        evaluation=evaluation,
    )


def _evaluated_version(task: IngestTask) -> int:
    """The version of the catalog with which the rows are evaluated. Without a slot, rules make no samples."""
    if task.rules is None or (task.rules.rules and task.derive.slot is None):
        return 0
    return task.rules.version


def _derive(
    task: IngestTask, spans: pa.Table | None, rules: RuleEvaluation | None, target: ObjectStore, now_ns: int
) -> tuple[list[Segment], tuple[tuple[int, int], ...], bytes, Evaluation]:
    """Write the metrics that follow from the rows. They become visible in the same commit."""
    slot = task.derive.slot
    if slot is None:
        return [], (), b"", Evaluation()
    series_key = task.options.metrics.series_key
    found: list[Derived] = []
    halves = b""
    if spans is not None:
        from_spans = derive_from_spans(spans, task.derive, series_key)
        found += from_spans.made
        halves = packed(from_spans.halves)
    evaluation = Evaluation() if rules is None else rules.result(slot, series_key)
    if evaluation.derived is not None:
        found.append(evaluation.derived)
    tables = metric_tables(found)
    segments = []
    if tables is not None:
        segments = [
            write_part(task.org_id, task.collector, METRICS, part, target, now_ns)
            for part in parts(METRICS, tables, now_ns)
        ]
    crash_point("derive_after_write")
    slots = tuple((slot, interval) for interval in sorted({each for one in found for each in one.intervals}))
    return segments, slots, halves, replace(evaluation, derived=None)


def _decode_all(task: IngestTask, signal: Signal) -> Iterator[tuple[ObjectOutcome, Decoded | None]]:
    for raw, fetched in _fetch_all(task):
        if isinstance(fetched, _Superseded):
            yield ObjectOutcome(raw.object_id, 0, superseded=True), None
            continue
        if isinstance(fetched, LakeError):
            yield quarantined(raw, str(fetched)), None
            continue
        in_range = 0 < fetched.modified_ns < MAX_TIME_NS
        options = task.options.for_object(raw.bucket, raw.key, fetched.modified_ns if in_range else None)
        try:
            decoded = read_object(fetched.body, signal, raw.key, task.limits, options)
        except LakeError as error:
            if error.retryable:
                raise
            yield quarantined(raw, str(error)), None
            continue
        except (pa.ArrowException, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
            # The decoder met bytes that it was not written for. They stay in quarantine until it is.
            yield quarantined(raw, f"cannot read the object: {type(error).__name__}: {error}"), None
            continue
        row_count = decoded.tables[signal.rows.suffix].num_rows
        yield ObjectOutcome(raw.object_id, row_count, reports=decoded.reports()), decoded if row_count else None


def _fetch_all(task: IngestTask) -> Iterator[tuple[RawObject, _Fetched | LakeError]]:
    """The objects in their order, several requests at a time; those behind a slow one wait, within a cap of bytes."""
    with ThreadPoolExecutor(task.fetches, thread_name_prefix="fetch") as pool:
        waiting = deque(task.objects)
        under_way: deque[tuple[RawObject, Future[_Fetched | LakeError]]] = deque()
        ahead_bytes = 0
        while waiting or under_way:
            while waiting and (not under_way or (len(under_way) < task.fetches and ahead_bytes < _FETCHED_BYTES)):
                raw = waiting.popleft()
                ahead_bytes += raw.size_bytes
                under_way.append((raw, pool.submit(_fetch, task, raw)))
            raw, fetching = under_way.popleft()
            yield raw, fetching.result()
            ahead_bytes -= raw.size_bytes


def _fetch(task: IngestTask, raw: RawObject) -> _Fetched | LakeError:
    """The bytes of exactly that version, or why they cannot be had for good. A store that is down raises."""
    with charged_to(task.org_id):
        return _fetch_now(task, raw)


def _fetch_now(task: IngestTask, raw: RawObject) -> _Fetched | LakeError:
    store = open_for_tasks(task.sources[raw.bucket])
    by_content = raw.version.startswith(CONTENT_VERSION)
    try:
        meta = store.head(raw.key)
        if not by_content and version_of(meta) != raw.version:
            raise _Superseded(f"cannot read {raw.key!r}: it was overwritten")
        if meta.size_bytes > task.limits.compressed_bytes:
            raise refuse("compressed_bytes", task.limits.compressed_bytes, f"it is {meta.size_bytes:,} bytes")
        body = store.get(raw.key, etag=meta.etag)
        if by_content and CONTENT_VERSION + content_hash(body).hexdigest() != raw.version:
            raise _Superseded(f"cannot read {raw.key!r}: it was overwritten")
        return _Fetched(raw, body, meta.modified_ns)
    except Conflict as error:
        return _Superseded(error.message)
    except LakeError as error:
        if error.retryable:
            raise
        return error
