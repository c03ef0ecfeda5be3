"""Objects that a real collector wrote (0.152, awss3exporter, otlp_proto, gzip), fed by telemetrygen 0.161."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow.compute as pc
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lakerunner.formats.decoded import Decoded
from lakerunner.formats.read import read_object
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, TRACES

RECORDED = Path(__file__).parent / "recorded"


def body_of(name: str) -> bytes:
    return (RECORDED / f"{name}.binpb.gz").read_bytes()


def decoded(name: str, signal: Signal) -> Decoded:
    found = read_object(body_of(name), signal, f"{name}.binpb.gz")
    assert not found.rejected
    return found


def test_logs() -> None:
    rows = decoded("logs", LOGS).tables[""]
    message = LogsData.FromString(gzip.decompress(body_of("logs")))
    records = [r for each in message.resource_logs for scope in each.scope_logs for r in scope.log_records]
    assert rows.num_rows == len(records) == 40
    assert rows.column("timestamp").cast("int64").to_pylist() == [r.time_unix_nano for r in records]
    first = rows.drop_columns(["timestamp"]).slice(0, 1).to_pylist()[0]
    assert first["message"] == "the message"
    assert (first["service_name"], first["severity"], first["severity_number"]) == ("telemetrygen", "Info", 9)
    assert (first["attr_http_route"], first["resource_deployment_environment"]) == ("/cart", "test")


@pytest.mark.parametrize(("name", "metric", "kind"), [("metrics_sum", "gen_total", "counter"),
                                                     ("metrics_histogram", "gen", "histogram")])  # fmt: skip
def test_metrics(name: str, metric: str, kind: str) -> None:
    tables = decoded(name, METRICS).tables
    samples, series = tables[""], tables[".series"]
    assert set(samples.column("metric_name").to_pylist()) == {metric, "target_info"}
    points = samples.filter(pc.equal(samples.column("metric_name"), metric))
    assert points.num_rows == 40
    described = {row["metric_name"]: row for row in series.to_pylist()}
    assert (described[metric]["type"], described[metric]["otel_name"]) == (kind, "gen")
    assert dict(described[metric]["labels"]) == {"job": "telemetrygen", "http_route": "/cart"}
    if kind == "counter":
        assert points.column("value").to_pylist() == [float(n) for n in range(40)]
    else:
        counts = points.column("h_count").to_pylist()
        assert counts == [sum(buckets) for buckets in points.column("h_positive_buckets").to_pylist()]


def test_traces() -> None:
    rows = decoded("traces", TRACES).tables[""]
    message = TracesData.FromString(gzip.decompress(body_of("traces")))
    spans = [s for each in message.resource_spans for scope in each.scope_spans for s in scope.spans]
    assert rows.num_rows == len(spans) == 60
    assert rows.column("trace_id").to_pylist() == [s.trace_id.hex() for s in spans]
    assert rows.column("span_id").to_pylist() == [s.span_id.hex() for s in spans]
    assert rows.column("duration_ns").to_pylist() == [s.end_time_unix_nano - s.start_time_unix_nano for s in spans]
    assert len(set(rows.column("trace_id").to_pylist())) == 20
