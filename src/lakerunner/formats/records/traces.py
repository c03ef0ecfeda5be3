"""Convert flat records to spans, one span per record."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.nesting import timestamps
from lakerunner.formats.records.ids import ids
from lakerunner.formats.records.records import Records
from lakerunner.model.signals import TRACES


def trace_tables(
    records: Records, fields: Mapping[str, tuple[str, ...]], limits: Limits, options: Options
) -> dict[str, pa.Table]:
    # ClickHouse's table of spans has nanoseconds under this name. Elsewhere a `duration` may be of any unit.
    unit_known = records.having("SpanName", "Duration")
    start_ns, _ = records.times(fields["start_timestamp"], options.fallback_time_ns, needed=True)
    end_ns, endless = records.times(fields["end_timestamp"], None, needed=False)
    lasted = records.numbers(fields["duration_ns"], pa.float64())
    lasted = pc.coalesce(lasted, records.numbers(["Duration"], pa.float64(), unit_known))
    lasted = pc.cast(lasted, pa.int64(), safe=False)
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
        "kind": _word(records.text(fields["kind"]), "SPAN_KIND_"),
        "status_code": pc.fill_null(_word(records.text(fields["status_code"]), "STATUS_CODE_"), "unset"),
        "status_message": records.text(fields["status_message"]),
        "start_timestamp": timestamps(start_ns, "ns"),
        "duration_ns": duration,
        "service_name": records.text(fields["service_name"]),
    }
    return {TRACES.rows.suffix: records.table(TRACES.rows, columns, limits)}


def _word(texts: pa.Array, prefix: str) -> pa.Array:
    """Normalise enum values: `SPAN_KIND_SERVER`, `Server` and `server` all become `server`."""
    return pc.utf8_lower(pc.replace_substring_regex(texts, f"^{prefix}", ""))
