"""Build the tables of a signal from flat records."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.records.fields import FIELDS
from lakerunner.formats.records.logs import log_tables
from lakerunner.formats.records.metrics import metric_tables
from lakerunner.formats.records.records import Records
from lakerunner.formats.records.traces import trace_tables
from lakerunner.model.signal import Signal

_BUILDERS = {"logs": log_tables, "metrics": metric_tables, "traces": trace_tables}


def record_tables(records: Records, signal: Signal, limits: Limits, options: Options) -> dict[str, pa.Table]:
    """Map well-known keys to the columns of the signal, and the rest to attributes or labels."""
    return _BUILDERS[signal.name](records, keys_by_field(signal.name, options.fields), limits, options)


def keys_by_field(signal: str, configured: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the keys to try for each of our fields; the configured key comes first.

    >>> keys_by_field("logs", {"message": "what"})["message"][:2]
    ('what', 'message')
    """
    return {name: (configured[name], *keys) if name in configured else keys for name, keys in FIELDS[signal].items()}
