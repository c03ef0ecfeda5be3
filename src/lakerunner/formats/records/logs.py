"""Convert flat records to log rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats import severity
from lakerunner.formats.attributes import as_text, cut_text
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.nesting import timestamps
from lakerunner.formats.records.ids import ids
from lakerunner.formats.records.records import Mask, Records
from lakerunner.model.signals import LOGS

#: Keys whose numbers are levels on a scale of their own.
_SCALED = {
    "syslog": ("PRIORITY", "syslog_priority", "syslog.priority"),
    "python": ("levelno", "level_number", "record.level.no"),
    "logback": ("level_value",),
    "application insights": ("severity_level",),
}
#: Keys that hold a level only sometimes, and the values that are then levels: MongoDB's and Datadog's.
_DOUBTFUL = {
    "s": r"^[FEWID]\d?$",
    "status": r"^(?i:emerg|emergency|alert|crit|critical|fatal|err|error|warn|warning|notice|info|debug|trace)$",
}


def log_tables(
    records: Records, fields: Mapping[str, tuple[str, ...]], limits: Limits, options: Options
) -> dict[str, pa.Table]:
    scales = _scales_of(records)
    is_bunyan = records.having("name", "hostname", "pid", "level")
    records.join_date_and_time()
    at_ns, _ = records.times(fields["timestamp"], options.fallback_time_ns, needed=True)
    observed_ns, unobserved = records.times(fields["observed_timestamp"], options.fallback_time_ns, needed=False)
    severities = _severity(records, fields, scales)
    service = records.text(fields["service_name"], _are_names)
    if is_bunyan.any():
        # bunyan and pino call the application `name`; elsewhere that is a logger.
        service = pc.coalesce(
            service, records.text(["name"], among=is_bunyan & service.is_null().to_numpy(zero_copy_only=False))
        )
    columns = {
        "timestamp": timestamps(at_ns, "ns"),
        "observed_timestamp": timestamps(observed_ns, "ns", unobserved),
        "service_name": service,
        **severities,
        "message": cut_text(pc.utf8_rtrim(records.text(fields["message"]), "\r\n"), limits, records.tally),
        "event_name": records.text(fields["event_name"]),
        "trace_id": ids(records, fields["trace_id"], 32),
        "span_id": ids(records, fields["span_id"], 16),
        "flags": records.numbers(fields["flags"], pa.uint32()),
        "dropped_attributes_count": records.numbers(fields["dropped_attributes_count"], pa.uint32()),
    }
    return {LOGS.rows.suffix: records.table(LOGS.rows, columns, limits)}


def _severity(
    records: Records, fields: Mapping[str, tuple[str, ...]], scales: Mapping[str, Mask]
) -> dict[str, pa.Array]:
    """Return the columns of a level: names that are known, else numbers, else any name."""
    number = records.numbers(fields["severity_number"], pa.int32())
    number = pc.if_else(pc.and_(pc.greater(number, 0), pc.less(number, 25)), number, pa.scalar(None, pa.int32()))
    certain = [key for key in fields["severity"] if key not in _DOUBTFUL]
    names = records.text(certain, _are_levels)
    for key, pattern in _DOUBTFUL.items():
        open_rows = names.is_null().to_numpy(zero_copy_only=False)
        if open_rows.any():
            accept = partial(_matching_text, pattern=pattern)
            names = pc.coalesce(names, records.text([key], accept, open_rows))
    open_rows = names.is_null().to_numpy(zero_copy_only=False)
    if open_rows.any():
        number = pc.coalesce(number, _numbered(records, certain, scales, open_rows))
        other = records.text(certain, _are_names, open_rows & number.is_null().to_numpy(zero_copy_only=False))
        names = pc.coalesce(names, other)
    return severity.fill(severity.spelled(names), number)


def _numbered(records: Records, keys: Sequence[str], scales: Mapping[str, Mask], open_rows: Mask) -> pa.Array:
    """Return the OTLP numbers of levels that were sent as numbers, on the scale that the logger uses."""
    found = pa.nulls(records.row_count, pa.int32())
    for scale, scaled in _SCALED.items():
        found = pc.coalesce(found, severity.on_scale(_level_numbers(records, scaled, open_rows), scale))
    levels = _level_numbers(records, keys, open_rows)
    rows = levels.is_valid().to_numpy(zero_copy_only=False)
    if not rows.any():
        return found
    plain = levels.fill_null(0).to_numpy(zero_copy_only=False)
    choices = {
        **{scale: mask & rows for scale, mask in scales.items()},
        "syslog": rows & (plain < 8),
        "otlp": rows & (plain < 25) & (plain % 10 != 0),
        "pino": rows & (plain < 70),
        "log4j2": rows & (plain >= 100) & (plain < 1_000),
        "logback": rows & (plain >= 1_000),
    }
    for scale, mask in choices.items():
        chosen = pc.if_else(pa.array(mask), levels, pa.scalar(None, pa.int32()))
        found = pc.coalesce(found, severity.on_scale(chosen, scale))
    return found


def _scales_of(records: Records) -> dict[str, Mask]:
    """Return the rows whose other keys show which logger numbered the level."""
    return {
        "windows": records.having("EventID", "Channel") | records.having("EventID", "ProviderName"),
        "python": records.having("levelname") | records.having("lineno") | records.having("funcName"),
    }


def _level_numbers(records: Records, keys: Sequence[str], among: Mask) -> pa.Array:
    texts = records.text(keys, _are_digits, among)
    return texts.cast(pa.int32())


def _are_digits(values: pa.Array) -> Mask:
    return _matching(as_text(values), r"^\d{1,6}$") if not pa.types.is_boolean(values.type) else _none(values)


def _are_levels(values: pa.Array) -> Mask:
    """Return a mask of the values that are level names. A number such as 200 is the status of a response."""
    if not pa.types.is_string(values.type):
        return _none(values)
    levels: Mask = severity.number_of(values).is_valid().to_numpy(zero_copy_only=False)
    return levels


def _are_names(values: pa.Array) -> Mask:
    """Return a mask of the values that are text with something in it."""
    return _matching(values, r"\S") if pa.types.is_string(values.type) else _none(values)


def _matching_text(values: pa.Array, pattern: str) -> Mask:
    return _matching(values, pattern) if pa.types.is_string(values.type) else _none(values)


def _matching(values: pa.Array, pattern: str) -> Mask:
    found: Mask = pc.fill_null(pc.match_substring_regex(values, pattern), False).to_numpy(zero_copy_only=False)
    return found


def _none(values: pa.Array) -> Mask:
    return np.zeros(len(values), np.bool_)
