"""Writes a sorted part of rows as a segment that nobody sees until it is committed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa

from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment, is_dated
from lakerunner.model.signal import Signal
from lakerunner.pipeline.split import Tables
from lakerunner.store import keys
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.segment_writer import describe, encode_tables, segment_of


def write_part(
    org_id: uuid.UUID,
    collector: str,
    signal: Signal,
    part: Tables,
    target: ObjectStore,
    now_ns: int,
    rules_version: int = 0,
) -> Segment:
    """Write a sorted part as a segment that nobody sees yet."""
    described = describe(signal, part[signal.rows.suffix])
    files: Sequence[pa.Buffer] = encode_tables(signal, part)
    segment = segment_of(
        signal,
        described,
        segment_id=fresh_id(),
        org_id=org_id,
        collector=collector,
        size_bytes=sum(file.size for file in files),
        is_dated=is_dated(described.time_range, now_ns),
        rules_version=rules_version,
    )
    for key, file in zip(keys.segment_keys(segment), files, strict=True):
        target.put(key, memoryview(file), create_only=True)
    return segment
