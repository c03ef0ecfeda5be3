"""Decode OTLP messages into tables: split the framing, decode the wire format, build rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp import framing, wire
from lakerunner.formats.otlp.anyvalue import DuplicateOneof
from lakerunner.formats.otlp.logs import log_tables
from lakerunner.formats.otlp.metrics import metric_tables
from lakerunner.formats.otlp.nesting import unnest
from lakerunner.formats.otlp.traces import trace_tables
from lakerunner.model.errors import BadInput, LakeError
from lakerunner.model.signal import Signal

Tables = dict[str, pa.Table]
_TABLES: dict[str, Callable[[pa.StructArray, Limits, Options, Tally], Tables]] = {
    "logs": log_tables,
    "metrics": metric_tables,
    "traces": trace_tables,
}


def read_protobuf(data: bytes, signal: Signal, limits: Limits, options: Options) -> tuple[Tables, Tally]:
    """Decode a file of one or more export requests."""
    readings = framing.readings(data)
    if len(readings) > 1:
        return _best_reading(readings, signal, limits, options)
    tally = Tally()
    return read_messages(readings[0] if readings else [data], signal, limits, options, tally), tally


def read_messages(payloads: list[bytes], signal: Signal, limits: Limits, options: Options, tally: Tally) -> Tables:
    parents = wire.decode(payloads, signal.name, tally)
    if not len(parents) and any(payloads):
        raise BadInput(
            f"cannot read the object as OTLP {signal}: it is well formed but holds no resource of that signal",
            where="byte 0",
            hint=f"it begins with {payloads[0][:24].hex(' ')}",
        )
    if signal.name == "logs" and options.fallback_time_ns is not None:
        _refuse_metrics(parents, payloads, limits)
    rows_tally = Tally()
    try:
        tables = _TABLES[signal.name](parents, limits, options, rows_tally)
    except DuplicateOneof:
        rows_tally = Tally()
        again = wire.decode([wire.canonical(payload, signal.name) for payload in payloads], signal.name, tally)
        tables = _TABLES[signal.name](again, limits, options, rows_tally)
    tally.add(rows_tally)
    return tables


def _refuse_metrics(parents: pa.StructArray, payloads: list[bytes], limits: Limits) -> None:
    """Refuse metrics sent as logs: their bytes decode as log records without a time, and would get the fallback."""
    records = unnest(parents, "scope_logs", "log_records").records
    times = [records.field(name) for name in ("time_unix_nano", "observed_time_unix_nano")]
    if not len(records) or any(pc.any(pc.not_equal(column, 0)).as_py() for column in times):
        return
    try:
        read = metric_tables(wire.decode(payloads, "metrics", Tally()), limits, Options(), Tally())
    except (BadInput, DuplicateOneof):
        return
    if read[""].num_rows:
        raise BadInput(
            "cannot read the object as logs: it holds OTLP metrics",
            where="byte 0",
            hint="check which prefix the collector writes to",
        )


def _best_reading(
    readings: list[list[bytes]], signal: Signal, limits: Limits, options: Options
) -> tuple[Tables, Tally]:
    """Decode every candidate framing and return the one with the most rows: a wrong one yields few or none."""
    best: tuple[int, Tables, Tally] | None = None
    failure: LakeError | None = None
    for payloads in readings:
        tally = Tally()
        try:
            tables = read_messages(payloads, signal, limits, options, tally)
        except BadInput as reason:
            failure = failure or reason
            continue
        rows = tables[signal.rows.suffix].num_rows
        if best is None or rows > best[0]:
            best = rows, tables, tally
    if best is None:
        assert failure is not None
        raise failure
    return best[1], best[2]
