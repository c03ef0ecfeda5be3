"""Decode raw objects to tables, in rows per CPU second, against the wire decoder alone on the same bytes.

It prints one JSON line per case.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import orjson
import ptars
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from lakerunner.formats.options import Options
from lakerunner.formats.read import read_object
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, TRACES
from tests.formats.otlp_samples import log_batches, metric_batches, trace_batches
from tests.formats.test_otlp_json import otlp_json

ROUNDS = 5
#: Rows of one object: what a collector writes in a minute of moderate load.
ROWS_PER_OBJECT = 20_000

AT = Options(fallback_time_ns=1_794_848_400_000_000_000)
#: Lines with minute, second and two numbers.
TEXT_LINES = {
    "python": b"2026-11-16 05:%02d:%02d,123 - shop.cart - WARNING - order %d of customer %d could not be paid\n",
    "spring": b"2026-11-16T05:%02d:%02d.123Z  INFO 1 --- [exec-1] c.e.shop.Cart : order %d of customer %d was paid\n",
    "access": b'10.0.0.1 - - [16/Nov/2026:05:%02d:%02d +0000] "GET /cart/%d HTTP/1.1" 200 %d "-" "Mozilla/5.0 (X11)"\n',
    "logfmt": b'time=2026-11-16T05:%02d:%02d.123Z level=info msg="order paid" order=%d customer=%d service=cart\n',
    "syslog": b"Nov 16 05:%02d:%02d host cart[12]: order %d of customer %d could not be paid\n",
    "cri": b"2026-11-16T05:%02d:%02d.123456789Z stdout F INFO order %d of customer %d could not be paid\n",
    "words": b"order %d of %d was paid %d times by customer %d\n",
}


def peer(message: Any) -> Callable[[list[bytes]], Any]:
    """Return ptars' decoder with every field of the protocol except the recursive ones: the minimum of work."""
    pool = descriptor_pool.DescriptorPool()
    names = []
    for module in (common_pb2, resource_pb2, logs_pb2, metrics_pb2, trace_pb2):
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for kind in file.message_type:
            for field in kind.field:
                if kind.name == "AnyValue" and field.name in ("array_value", "kvlist_value"):
                    field.type = field.TYPE_BYTES
                    field.ClearField("type_name")
        pool.Add(file)
        names.append(file.name)
    handlers = ptars.HandlerPool([pool.FindFileByName(name) for name in names])
    return handlers.get_for_message(pool.FindMessageTypeByName(message.DESCRIPTOR.full_name)).list_to_record_batch


def cpu_seconds(call: Callable[[], Any]) -> float:
    """Return the minimum of several rounds: slower ones were disturbed."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def report(case: str, rows: int, seconds: float, peer_seconds: float | None = None) -> None:
    value = rows / seconds
    line: dict[str, Any] = {
        "bench": "decode",
        "case": case,
        "value": round(value),
        "unit": "rows per CPU second",
        "better": "higher",
    }
    if peer_seconds is not None:
        line |= {
            "peer": "ptars alone",
            "peer_value": round(rows / peer_seconds),
            "ratio": round(peer_seconds / seconds, 2),
        }
    sys.stdout.write(orjson.dumps(line).decode() + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="decode a tenth of the records")
    parser.add_argument("--rows", type=int, help="records of each kind (default 200,000)")
    options = parser.parse_args()
    rows = options.rows or (20_000 if options.quick else 200_000)
    sources: dict[str, tuple[Signal, Any, list[Any]]] = {
        "otlp logs": (LOGS, logs_pb2.LogsData, list(log_batches(rows))),
        "otlp spans": (TRACES, trace_pb2.TracesData, list(trace_batches(rows))),
        "otlp points, 10 per series": (METRICS, metrics_pb2.MetricsData, list(metric_batches(rows, series=rows // 10))),
        "otlp points, 100 per series": (
            METRICS,
            metrics_pb2.MetricsData,
            list(metric_batches(rows, series=rows // 100)),
        ),
    }
    for case, (signal, message, batches) in sources.items():
        wires = [batch.SerializeToString() for batch in batches]
        objects = [b"".join(wires)]
        alone = peer(message)
        peer_seconds = cpu_seconds(lambda: alone(objects))  # noqa: B023
        report(case, rows, cpu_seconds(lambda: [read_object(o, signal) for o in objects]), peer_seconds)  # noqa: B023
    batches = list(log_batches(min(rows, ROWS_PER_OBJECT)))
    count = min(rows, ROWS_PER_OBJECT)
    request_lines = b"\n".join(orjson.dumps(otlp_json(batch)) for batch in batches)
    report("otlp json logs", count, cpu_seconds(lambda: read_object(request_lines, LOGS)))
    table = read_object(b"".join(batch.SerializeToString() for batch in batches), LOGS).tables[""]
    keep = [name for name in table.column_names if not name.startswith(("resource_", "scope_"))]
    records = table.select(keep).set_column(0, "timestamp", table.column("timestamp").cast("int64"))
    records = records.set_column(1, "observed_timestamp", table.column("observed_timestamp").cast("int64"))
    lines = b"\n".join(orjson.dumps(row) for row in records.to_pylist())
    report("json lines logs", count, cpu_seconds(lambda: read_object(lines, LOGS)))
    header = b"timestamp,level,message,host,code\n"
    csv = header + b"".join(b"%d,info,hello world %d,h%d,200\n" % (1763200000000 + i, i, i % 9) for i in range(count))
    report("csv logs", count, cpu_seconds(lambda: read_object(csv, LOGS, "x.csv")))
    for case, pattern in TEXT_LINES.items():
        text = b"".join(pattern % (i // 60 % 60, i % 60, i, i % 77) for i in range(count))
        report(f"text logs, {case}", count, cpu_seconds(lambda: read_object(text, LOGS, "x.log", None, AT)))  # noqa: B023


if __name__ == "__main__":
    main()
