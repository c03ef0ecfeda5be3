"""Broken objects: whatever the bytes, the answer is rows, a refusal, or a limit, and never anything else."""

from __future__ import annotations

import gzip
import io
import os
import random

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from lakerunner.formats.decoded import Decoded
from lakerunner.formats.limits import Limits
from lakerunner.formats.read import read_object
from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, TRACES
from tests.formats.mutation import mutate
from tests.formats.otlp_samples import log_batches, metric_batches, trace_batches
from tests.formats.test_otlp_json import otlp_json

#: Mutations of each seed. `LAKERUNNER_FUZZ=2000` looks longer.
MUTATIONS = int(os.environ.get("LAKERUNNER_FUZZ", "200"))
LIMITS = Limits(expanded_bytes=50_000_000)
MESSAGES = {LOGS: next(log_batches(12)), METRICS: next(metric_batches(24, series=24)), TRACES: next(trace_batches(12))}


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def seeds() -> dict[str, tuple[Signal, bytes]]:
    found: dict[str, tuple[Signal, bytes]] = {}
    for signal, message in MESSAGES.items():
        wire = message.SerializeToString()
        found[f"{signal}.binpb"] = signal, wire
        found[f"{signal}.json"] = signal, orjson.dumps(otlp_json(message))
    wire = found["logs.binpb"][1]
    found["logs.delimited"] = LOGS, len(wire).to_bytes(4, "big") + wire
    found["logs.binpb.gz"] = LOGS, gzip.compress(wire)
    found["logs.binpb.zst"] = LOGS, zstandard.compress(wire)
    records = b"\n".join(orjson.dumps({"ts": 1763200000 + i, "level": "info", "a": {"b": [i]}}) for i in range(20))
    found["lines.jsonl"] = LOGS, records
    found["samples.jsonl"] = METRICS, b'{"name":"cpu","ts":1763200000,"value":1.5,"host":"a"}\n' * 5
    found["rows.csv"] = LOGS, b"time,level,message,n\n" + b'2025-11-15T09:46:40Z,info,"a, b",1\n' * 10
    found["lines.log"] = LOGS, b"2026-11-16 05:00:00,123 - a.b - ERROR - x, y\nTraceback (most\n  File\nE: x\n" * 5
    found["mixed.log"] = (
        LOGS,
        (
            b'2026-11-16T05:00:00.1Z stdout P {"level":"info",\n2026-11-16T05:00:00.1Z stdout F "msg":"m"}\n'
            b'2026-11-16T05:00:00.1Z stderr F time=2026-11-16T05:00:00Z level=warn msg="a \\"b" x=1\n'
            b'2026-11-16T05:00:00.1Z stderr F <34>1 2026-11-16T05:00:00Z h app 1 - [id a="b"] m\n'
        ),
    )
    found["samples.csv"] = METRICS, b"time,name,value,host\n" + b"1763200000,cpu,1.5,a\n" * 10
    table = read_object(wire, LOGS).tables[""]
    found["rows.parquet"] = LOGS, parquet(table.select(["timestamp", "message", "trace_id", "attr_http_status_code"]))
    return found


SEEDS = seeds()


def check(decoded: Decoded, signal: Signal) -> None:
    for description in signal.tables:
        table = decoded.tables[description.suffix]
        table.validate(full=True)
        fixed = description.schema()
        assert table.schema.names[: len(fixed)] == fixed.names
        assert [table.schema.field(name).type for name in fixed.names] == fixed.types
        for column in description.columns:
            assert column.nullable or table.column(column.name).null_count == 0, column.name
    assert all(count > 0 for count in decoded.rejected.values())


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_the_seed_itself_is_read(name):
    signal, data = SEEDS[name]
    decoded = read_object(data, signal, name, LIMITS)
    assert decoded.tables[""].num_rows > 0
    check(decoded, signal)


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_mutants_are_read_or_refused(name):
    signal, data = SEEDS[name]
    outcomes = set()
    for number in range(MUTATIONS):
        mutant = mutate(data, random.Random(f"{name}/{number}"))
        try:
            check(read_object(mutant, signal, name, LIMITS), signal)
            outcomes.add("read")
        except (BadInput, LimitHit) as reason:
            assert reason.message.startswith("cannot "), (number, reason)
            outcomes.add("refused")
        except BaseException as reason:
            reason.add_note(f"mutant {number} of {name}: {mutant[:200]!r}")
            raise
    assert outcomes


@pytest.mark.parametrize("signal", [LOGS, METRICS, TRACES], ids=str)
@pytest.mark.parametrize("name", sorted(SEEDS))
def test_a_wrong_signal_or_suffix_does_no_harm(name, signal):
    for hint in ("", "x.csv", "x.json.gz", "x.parquet", "x.binpb"):
        try:
            check(read_object(SEEDS[name][1], signal, hint, LIMITS), signal)
        except (BadInput, LimitHit):
            continue


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"resourceLogs":' + b"[" * 100_000,
        b"\x0a\xff\xff\xff\xff\x0f" + b"x" * 50,
        b"\xff\xff\xff\x7f" + b"\x0a" * 50,
        b"\x00" * 1_000,
        b"\n" * 1_000,
        b"," * 100_000,
        b'"' * 1_001,
        b"PAR1" * 100,
        b"\x1f\x8b\x08" + b"\x00" * 20,
        b"\x28\xb5\x2f\xfd" + b"\xff" * 20,
        b"{}",
        b"[]",
        b"null",
        b"\xef\xbb\xbf",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_nasty_objects(data):
    for signal in (LOGS, METRICS, TRACES):
        for hint in ("", "x.json", "x.csv", "x.binpb"):
            try:
                check(read_object(data, signal, hint, LIMITS), signal)
            except (BadInput, LimitHit):
                continue
