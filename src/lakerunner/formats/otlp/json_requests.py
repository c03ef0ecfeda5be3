"""Read OTLP JSON: one export request, or one per line. A bad line is counted and skipped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakerunner.formats.decoded import Tally, excerpt_of
from lakerunner.formats.jsonl import documents
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.decode import read_messages
from lakerunner.formats.otlp.json_to_protobuf import looks_like, to_wire
from lakerunner.model.errors import BadInput
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS


def request_signal(document: Any) -> str | None:
    """Return the signal of a parsed export request, or None if the document is not one."""
    return next((signal.name for signal in SIGNALS if looks_like(document, signal.name)), None)


def read_otlp_json(data: bytes, signal: Signal, limits: Limits, options: Options) -> tuple[dict[str, pa.Table], Tally]:
    tally = Tally()
    payloads = []
    for number, line, document in documents(data, limits, tally):
        where = f"line {number}"
        if not looks_like(document, signal.name):
            tally.reject("not_an_export_request", where=where, excerpt=excerpt_of(line))
            continue
        try:
            payloads.append(to_wire(document, signal.name, limits))
        except BadInput as reason:
            tally.reject("bad_otlp_json", where=f"{where}, {reason.where}", excerpt=reason.message)
    # Every request is a complete message already, so there is no framing to split.
    return read_messages(payloads or [b""], signal, limits, options, tally), tally
