"""Puts the rows of small batches together, so that work per batch is done once for many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakerunner.query.scan.rows.conditions.id_runs import NO_IDS, Ids, concat_ids

#: Batches with as many rows are large enough.
ENOUGH_ROWS = 16_384


class Gathered:
    """Batches of the same columns, types and names of attributes, with the ids of their traces if those are known."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[object, ...], list[tuple[pa.RecordBatch, Ids]]] = {}
        self._rows: dict[tuple[object, ...], int] = {}

    def add(self, batch: pa.RecordBatch, ids: Ids = NO_IDS) -> Iterator[tuple[pa.RecordBatch, Ids]]:
        """What has become large enough with this batch."""
        shape = _shape(batch.schema)
        self._waiting.setdefault(shape, []).append((batch, ids))
        self._rows[shape] = self._rows.get(shape, 0) + batch.num_rows
        if self._rows[shape] >= ENOUGH_ROWS:
            del self._rows[shape]
            yield _one(self._waiting.pop(shape))

    def rest(self) -> Iterator[tuple[pa.RecordBatch, Ids]]:
        yield from map(_one, self._waiting.values())
        self._waiting, self._rows = {}, {}


def _shape(schema: pa.Schema) -> tuple[object, ...]:
    metadata = schema.metadata or {}
    return tuple(schema.names), tuple(schema.types), tuple(sorted(metadata.items()))


def _one(parts: Sequence[tuple[pa.RecordBatch, Ids]]) -> tuple[pa.RecordBatch, Ids]:
    if len(parts) == 1:
        return parts[0]
    batches = [batch for batch, _ in parts]
    columns = [pa.concat_arrays(arrays) for arrays in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema), concat_ids([ids for _, ids in parts])
