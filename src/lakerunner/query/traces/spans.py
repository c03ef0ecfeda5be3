"""The columns in which the spans of a trace travel: those of the signal, and all attributes as they were sent."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakerunner.formats.typed_attributes import ATTRIBUTE, typed_attributes
from lakerunner.model.signals.logs import SPELLED
from lakerunner.model.signals.traces import SENT, TRACES
from lakerunner.query.scan.rows.row_group.rows import Found
from lakerunner.query.scan.rows.scan import one_batch
from lakerunner.query.scan.rows.unify import conform
from lakerunner.store.nanos import join_nanos

ATTRIBUTES = "attributes"
SCHEMA = pa.schema(
    [
        *(pa.field(each.name, each.type) for each in TRACES.rows.columns if each.name not in (SPELLED, SENT)),
        pa.field(ATTRIBUTES, pa.list_(ATTRIBUTE)),
    ]
)


class SpanShape:
    """Makes the rows of an answer from stored spans."""

    def part(self, found: Found) -> pa.RecordBatch:
        return span_batch(found.batch(None))

    def whole(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return one_batch(parts)


def span_batch(stored: pa.RecordBatch) -> pa.RecordBatch:
    """Return stored rows in the columns of `SCHEMA`."""
    at = stored.schema.get_field_index("events")
    if at >= 0 and pa.types.is_list(stored.schema.field(at).type):
        # Times within events have their own remainder of nanoseconds.
        joined = join_nanos(pa.table([stored.column(at)], schema=pa.schema([stored.schema.field(at)])))
        stored = stored.set_column(at, joined.schema.field(0), joined.column(0).combine_chunks())
    named = stored.append_column(pa.field(ATTRIBUTES, pa.list_(ATTRIBUTE)), typed_attributes(stored))
    return conform(named, SCHEMA)
