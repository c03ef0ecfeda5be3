"""Convert OTLP logs to rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats import severity
from lakerunner.formats.attributes import Level, promote
from lakerunner.formats.decoded import Tally, table_of
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.anyvalue import Nested, Pairs, Values
from lakerunner.formats.otlp.nesting import (
    SERVICE_NAME,
    hex_ids,
    nanos,
    null_if_empty,
    shared_levels,
    timestamps,
    unnest,
)
from lakerunner.model.signals import LOGS

#: A resource without a service is named after its container or job, as Loki does.
_SERVICE_KEYS = ((SERVICE_NAME,), ("container.name", "k8s.container.name", "k8s.job.name"))


def log_tables(parents: pa.StructArray, limits: Limits, options: Options, tally: Tally) -> dict[str, pa.Table]:
    nest = unnest(parents, "scope_logs", "log_records")
    records = nest.records
    resource, scope, service = shared_levels(nest, limits, tally, _SERVICE_KEYS, nested=Nested.FLAT)
    pairs = Pairs.of(records.field("attributes"), limits, tally, nested=Nested.FLAT)
    own = Level("attr", len(records), list(pairs.entries(limits, tally)))
    promoted = promote((resource, scope, own), len(records), tally)

    time_ns, bad = nanos(records.field("time_unix_nano"))
    observed_ns, observed_bad = nanos(records.field("observed_time_unix_nano"))
    at_ns = np.where(time_ns == 0, observed_ns, time_ns)
    bad = np.where(time_ns == 0, observed_bad, bad)
    if options.fallback_time_ns is not None:
        at_ns = np.where(at_ns == 0, options.fallback_time_ns, at_ns)
    table = table_of(
        LOGS.rows,
        {
            "timestamp": timestamps(at_ns, "ns"),
            # Without an event time, the observed time has become that.
            "observed_timestamp": timestamps(observed_ns, "ns", (observed_ns == 0) | observed_bad | (time_ns == 0)),
            "service_name": service.take(pa.array(nest.resource_of)),
            **_severities(records),
            "message": Values.of(records.field("body"), limits, tally, Nested.GO_JSON).text(),
            "event_name": null_if_empty(records.field("event_name")),
            "trace_id": hex_ids(records.field("trace_id")),
            "span_id": hex_ids(records.field("span_id")),
            "flags": records.field("flags"),
            "dropped_attributes_count": records.field("dropped_attributes_count"),
        },
        len(records),
    )
    tally.reject_rows("time_out_of_range", bad)
    tally.reject_rows("no_timestamp", (at_ns == 0) & ~bad)
    refused = bad | (at_ns == 0)
    table = promoted.add_to(table)
    return {LOGS.rows.suffix: table.filter(pa.array(~refused)) if refused.any() else table}


def _severities(records: pa.StructArray) -> dict[str, pa.Array]:
    number = records.field("severity_number")
    numbers = pc.if_else(pc.equal(number, 0), pa.scalar(None, pa.int32()), number)
    return severity.fill(null_if_empty(records.field("severity_text")), numbers)
