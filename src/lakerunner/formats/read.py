"""Decode the bytes of a raw object into the tables of its signal: the entry point of this package."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lakerunner.formats.compression import expand
from lakerunner.formats.csv import read_csv
from lakerunner.formats.decoded import Decoded, Tally, excerpt_of
from lakerunner.formats.detect import Format, detect
from lakerunner.formats.jsonl import documents, is_mixed, read_jsonl
from lakerunner.formats.limits import Limits
from lakerunner.formats.log_details import with_details
from lakerunner.formats.options import Options
from lakerunner.formats.otlp.decode import read_protobuf
from lakerunner.formats.otlp.json_requests import read_otlp_json, request_signal
from lakerunner.formats.parquet import read_parquet
from lakerunner.formats.text.read import read_text
from lakerunner.formats.text_encoding import without_mark
from lakerunner.model.errors import BadInput
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS

_Reader = Callable[[bytes, Signal, Limits, Options], tuple[dict[str, pa.Table], Tally]]
#: JSON lines examined for an OTLP request before the object is read as plain records.
_JSON_LINES_TRIED = 20


def read_object(
    data: bytes, signal: Signal, name_hint: str = "", limits: Limits | None = None, options: Options | None = None
) -> Decoded:
    """Decode an object. BadInput and LimitHit mean quarantine: a retry with the same bytes cannot succeed.

    Unusable rows are counted in `rejected`, with samples, and the other rows are kept. An object without a single
    usable row is refused as a whole: its format or signal was probably misjudged.
    """
    limits, options = limits or Limits(), options or Options()
    content = without_mark(expand(data, limits))
    found = options.format or detect(content, name_hint)
    if found is Format.EMPTY:
        return Decoded({table.suffix: table.schema().empty_table() for table in signal.tables}, str(found))
    name, reader = _reader(found, content, signal, limits)
    try:
        tables, tally = reader(content, signal, limits, options)
    # Column names and time zones in a Parquet schema may be invalid UTF-8 too; Arrow notices only on access.
    except (pa.ArrowException, UnicodeDecodeError) as reason:
        raise BadInput(
            f"cannot read the object as {name}: {(str(reason) or type(reason).__name__).splitlines()[0][:200]}",
            where=f"{len(content)} bytes",
            hint=f"it begins with {excerpt_of(content[:80])}",
        ) from None
    if signal is LOGS:
        tables[signal.rows.suffix] = with_details(tables[signal.rows.suffix])
    if tally.rejected and not tables[signal.rows.suffix].num_rows:
        raise _all_refused(name, signal, tally)
    return Decoded.of(tables, name, tally)


def _reader(found: Format, content: bytes, signal: Signal, limits: Limits) -> tuple[str, _Reader]:
    match found:
        case Format.PARQUET:
            return str(found), read_parquet
        case Format.CSV:
            return str(found), read_csv
        case Format.PROTOBUF:
            return str(found), read_protobuf
        case Format.TEXT if signal is not LOGS:
            raise BadInput(
                f"cannot read the object as {signal}: it is plain text, which only logs are",
                where="line 1",
                hint=f"check the prefix that it was written to; it begins with {excerpt_of(content[:80])}",
            )
        case Format.TEXT:
            return str(found), read_text
        case _:
            return _json_reader(content, signal, limits)


def _json_reader(content: bytes, signal: Signal, limits: Limits) -> tuple[str, _Reader]:
    if signal is LOGS and is_mixed(content):
        return str(Format.TEXT), read_text
    parsed: itertools.islice[tuple[int, bytes, Any]] = itertools.islice(
        documents(content, limits, Tally()), _JSON_LINES_TRIED
    )
    for _, _, document in parsed:
        sent = request_signal(document)
        if sent == signal.name:
            return "otlp-json", read_otlp_json
        if sent is not None:
            raise BadInput(
                f"cannot read the object as {signal}: it holds OTLP {sent}",
                where="line 1",
                hint="check which prefix the collector writes to",
            )
    return "jsonl", read_jsonl


def _all_refused(name: str, signal: Signal, tally: Tally) -> BadInput:
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in sorted(tally.rejected.items()))
    sample = next((seen[0] for seen in tally.samples.values() if seen), None)
    hint = "check that it holds this signal"
    if sample and sample.excerpt:
        hint = f"the first rejected row begins with {sample.excerpt}"
    return BadInput(
        f"cannot read the object as {signal} in {name}: none of its rows is usable: {reasons}",
        where=sample.where if sample else None,
        hint=hint,
    )
