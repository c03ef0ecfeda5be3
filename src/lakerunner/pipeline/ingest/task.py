"""What one Spark task of ingest does: read raw objects, decode, merge, sort, split by hour, write, and report.

Nothing that a task writes is visible: it reports segments, and the driver's commit makes them live. So a task may die
or run twice at any point.
"""

from __future__ import annotations

import traceback
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from lakerunner.formats.decoded import Decoded
from lakerunner.formats.limits import Limits, refuse
from lakerunner.formats.options import Options
from lakerunner.formats.read import read_object
from lakerunner.model.errors import Bug, LakeError, Missing, Unavailable
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import signal_named
from lakerunner.pipeline.ingest.split import Tables, merged, parts
from lakerunner.runtime.crash import crash_point
from lakerunner.store import keys
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of

#: Bytes of raw objects that may wait, fetched, for their turn to be decoded.
_FETCHED_BYTES = 64 << 20
_REASON_CHARS = 1_000


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
    fetches: int = 8


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task made of its objects. `rejected` are rows that were refused while their neighbours landed."""

    item_id: uuid.UUID
    segments: tuple[Segment, ...] = ()
    objects: tuple[ObjectOutcome, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    error: LakeError | None = None


@dataclass(frozen=True, slots=True)
class _Fetched:
    raw: RawObject
    body: bytes
    modified_ns: int


def run_task(task: IngestTask) -> TaskResult:
    """Run the task. An error that no object is to blame for is the result's `error`: it concerns this item alone."""
    try:
        return _run(task)
    except LakeError as error:
        return TaskResult(task.item_id, error=error)
    except MemoryError:
        return TaskResult(task.item_id, error=Unavailable("cannot ingest the item: the task is out of memory"))
    except Exception as error:  # noqa: BLE001  an error of ours in one item must not end the job of all
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return TaskResult(
            task.item_id, error=Bug(f"cannot ingest the item: {type(error).__name__}: {error}", where=where)
        )


def _run(task: IngestTask) -> TaskResult:
    signal = signal_named(task.signal)
    decoded: list[Decoded] = []
    outcomes: list[ObjectOutcome] = []
    rejected: dict[str, int] = {}
    for outcome, one in _decode_all(task, signal):
        outcomes.append(outcome)
        if one is not None:
            decoded.append(one)
            for reason, count in one.rejected.items():
                rejected[reason] = rejected.get(reason, 0) + count
    crash_point("ingest_after_read")
    segments: list[Segment] = []
    if decoded:
        tables = merged(signal, [one.tables for one in decoded])
        decoded.clear()
        target = open_source(task.target)
        segments = [_write(task, signal, part, target) for part in parts(signal, tables)]
    crash_point("ingest_after_write")
    return TaskResult(task.item_id, tuple(segments), tuple(outcomes), rejected)


def _decode_all(task: IngestTask, signal: Signal) -> Iterator[tuple[ObjectOutcome, Decoded | None]]:
    for raw, fetched in _fetch_all(task):
        if isinstance(fetched, LakeError):
            yield _quarantined(raw, str(fetched)), None
            continue
        options = task.options.for_object(raw.bucket, raw.key, fetched.modified_ns)
        try:
            decoded = read_object(fetched.body, signal, raw.key, task.limits, options)
        except LakeError as error:
            if error.retryable:
                raise
            yield _quarantined(raw, str(error)), None
            continue
        except (pa.ArrowException, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
            # The decoder met bytes that it was not written for. They stay in quarantine until it is.
            yield _quarantined(raw, f"cannot read the object: {type(error).__name__}: {error}"), None
            continue
        row_count = decoded.tables[signal.rows.suffix].num_rows
        yield ObjectOutcome(raw.object_id, row_count), decoded if row_count else None


def _quarantined(raw: RawObject, reason: str) -> ObjectOutcome:
    # PostgreSQL's text cannot hold NUL.
    return ObjectOutcome(raw.object_id, 0, reason.replace("\0", "\\0")[:_REASON_CHARS])


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
    store = open_source(task.sources[raw.bucket])
    try:
        meta = store.head(raw.key)
        if version_of(meta) != raw.version:
            raise Missing(f"cannot read {raw.key!r}: it was overwritten before it was read")
        if meta.size_bytes > task.limits.compressed_bytes:
            raise refuse("compressed_bytes", task.limits.compressed_bytes, f"it is {meta.size_bytes:,} bytes")
        return _Fetched(raw, store.get(raw.key), meta.modified_ns)
    except LakeError as error:
        if error.retryable:
            raise
        return error


def _write(task: IngestTask, signal: Signal, part: Tables, target: ObjectStore) -> Segment:
    described = describe(signal, part[signal.rows.suffix])
    files: Sequence[pa.Buffer] = encode_tables(signal, part)
    segment = segment_of(
        signal,
        described,
        segment_id=fresh_id(),
        org_id=task.org_id,
        collector=task.collector,
        size_bytes=sum(file.size for file in files),
    )
    for key, file in zip(keys.segment_keys(segment), files, strict=True):
        target.put(key, memoryview(file), create_only=True)
    return segment


@lru_cache(maxsize=32)
def open_source(config: StoreConfig) -> ObjectStore:
    """One store per config and process: workers live long, and connections are worth keeping."""
    return open_store(config)
