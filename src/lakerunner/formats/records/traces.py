"""Convert flat records to spans, one span per record."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.nesting import timestamps
from lakerunner.formats.records import spans
from lakerunner.formats.records.ids import ids
from lakerunner.formats.records.records import Records
from lakerunner.model.signals import TRACES
from lakerunner.model.time import MAX_TIME_NS

_DROPPED = ("dropped_attributes_count", "dropped_events_count", "dropped_links_count")


def trace_tables(
    records: Records, fields: Mapping[str, tuple[str, ...]], limits: Limits, options: Options
) -> dict[str, pa.Table]:
    # ClickHouse's table of spans has nanoseconds under this name. Elsewhere a `duration` may be of any unit.
    unit_known = records.having("SpanName", "Duration")
    start_ns, _ = records.times(fields["start_timestamp"], options.fallback_time_ns, needed=True)
    end_ns, endless = records.times(fields["end_timestamp"], None, needed=False, bounded=True)
    lasted = spans.durations(records, fields["duration_ns"])
    lasted = pc.coalesce(lasted, records.numbers(["Duration"], pa.float64(), unit_known))
    fits = pc.fill_null(pc.less(pc.abs(lasted), float(MAX_TIME_NS)), True)
    records.refuse("time_out_of_range", ~fits.to_numpy(zero_copy_only=False))
    lasted = pc.cast(pc.if_else(fits, lasted, 0.0), pa.int64(), safe=False)
    duration = pc.coalesce(lasted, pa.array(np.where(endless, 0, end_ns - start_ns)))
    trace_id = ids(records, fields["trace_id"], 32)
    records.refuse("no_trace_id", trace_id.is_null().to_numpy(zero_copy_only=False))
    columns = {
        "trace_id": trace_id,
        "span_id": ids(records, fields["span_id"], 16),
        "parent_span_id": ids(records, fields["parent_span_id"], 16),
        "trace_state": records.text(fields["trace_state"]),
        "flags": records.numbers(fields["flags"], pa.uint32()),
        "name": records.text(fields["name"]),
        "kind": spans.kinds(records, fields["kind"]),
        "status_code": spans.statuses(records, fields["status_code"]),
        "status_message": records.text(fields["status_message"]),
        "start_timestamp": timestamps(start_ns, "ns"),
        "duration_ns": duration,
        "service_name": records.text(fields["service_name"]),
        "events": spans.events(records, limits),
        "links": spans.links(records, limits),
        **{name: records.numbers([name], pa.uint32()) for name in _DROPPED},
    }
    return {TRACES.rows.suffix: records.table(TRACES.rows, columns, limits)}
