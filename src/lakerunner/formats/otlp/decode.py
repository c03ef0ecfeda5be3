"""OTLP in either form to tables: framing, wire, rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp import framing, wire
from lakerunner.formats.otlp.anyvalue import TwoValues
from lakerunner.formats.otlp.logs import log_tables
from lakerunner.formats.otlp.metrics import metric_tables
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
    """The tables of a file of one or more export requests."""
    readings = framing.readings(data)
    if len(readings) > 1:
        return _likelier(readings, signal, limits, options)
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
    rows_tally = Tally()
    try:
        tables = _TABLES[signal.name](parents, limits, options, rows_tally)
    except TwoValues:
        rows_tally = Tally()
        again = wire.decode([wire.canonical(payload, signal.name) for payload in payloads], signal.name, tally)
        tables = _TABLES[signal.name](again, limits, options, rows_tally)
    tally.add(rows_tally)
    return tables


def _likelier(readings: list[list[bytes]], signal: Signal, limits: Limits, options: Options) -> tuple[Tables, Tally]:
    """Of the ways to read the bytes, the one that gives most rows: a wrong one finds few or none."""
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
