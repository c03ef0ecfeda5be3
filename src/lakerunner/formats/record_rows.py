"""Flat records to the tables of their signal."""

from __future__ import annotations

import pyarrow as pa

from lakerunner.formats import record_logs, record_metrics, record_traces
from lakerunner.formats.fields import fields_for
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.records import Records
from lakerunner.model.signal import Signal

_BUILDERS = {"logs": record_logs.tables, "metrics": record_metrics.tables, "traces": record_traces.tables}


def tables_of(records: Records, signal: Signal, limits: Limits, options: Options) -> dict[str, pa.Table]:
    return _BUILDERS[signal.name](records, fields_for(signal.name, options.fields), limits, options)
