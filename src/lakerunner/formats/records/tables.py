"""Build the tables of a signal from flat records."""

from __future__ import annotations

import pyarrow as pa

from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.records.fields import keys_by_field
from lakerunner.formats.records.logs import log_tables
from lakerunner.formats.records.metrics import metric_tables
from lakerunner.formats.records.records import Records
from lakerunner.formats.records.traces import trace_tables
from lakerunner.model.signal import Signal

_BUILDERS = {"logs": log_tables, "metrics": metric_tables, "traces": trace_tables}


def record_tables(records: Records, signal: Signal, limits: Limits, options: Options) -> dict[str, pa.Table]:
    """Map well-known keys to the columns of the signal, and the rest to attributes or labels."""
    return _BUILDERS[signal.name](records, keys_by_field(signal.name, options.fields), limits, options)
