"""Convert flat records to log rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats import severity
from lakerunner.formats.attributes import as_text, cut_text
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.nesting import timestamps
from lakerunner.formats.records.records import Records, hex_text
from lakerunner.model.signals import LOGS


def log_tables(
    records: Records, fields: Mapping[str, tuple[str, ...]], limits: Limits, options: Options
) -> dict[str, pa.Table]:
    at_ns, _ = records.times(fields["timestamp"], options.fallback_time_ns, needed=True)
    observed_ns, unobserved = records.times(fields["observed_timestamp"], None, needed=False)
    number = records.numbers(fields["severity_number"], pa.int32())
    *certain, status = fields["severity"]
    names = pc.coalesce(records.text(certain), records.text([status], _are_levels))
    known = severity.number_of(names)
    # Loggers that write the level as a number (30, 50) send no name, so we use OTLP's.
    digits = pc.fill_null(pc.match_substring_regex(names, r"^\d+$"), False)
    derived = severity.name_of(pc.fill_null(known, 0).to_numpy(zero_copy_only=False).astype(np.int64))
    names, number = severity.fill(pc.if_else(digits, pc.coalesce(derived, names), names), pc.coalesce(number, known))
    columns = {
        "timestamp": timestamps(at_ns, "ns"),
        "observed_timestamp": timestamps(observed_ns, "ns", unobserved),
        "service_name": records.text(fields["service_name"]),
        "severity": names,
        "severity_number": number,
        "message": cut_text(pc.utf8_rtrim(records.text(fields["message"]), "\r\n"), limits, records.tally),
        "event_name": records.text(fields["event_name"]),
        "trace_id": hex_text(records.text(fields["trace_id"])),
        "span_id": hex_text(records.text(fields["span_id"])),
        "flags": records.numbers(fields["flags"], pa.uint32()),
        "dropped_attributes_count": records.numbers(fields["dropped_attributes_count"], pa.uint32()),
    }
    return {LOGS.rows.suffix: records.table(LOGS.rows, columns, limits)}


def _are_levels(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that are level names. A number such as 200 is the status of a response."""
    if not pa.types.is_string(values.type):
        return np.zeros(len(values), np.bool_)
    known = severity.number_of(as_text(values))
    digits = pc.match_substring_regex(values, r"^\s*\d+\s*$")
    levels: npt.NDArray[np.bool_] = pc.and_(known.is_valid(), pc.invert(digits)).to_numpy(zero_copy_only=False)
    return levels
