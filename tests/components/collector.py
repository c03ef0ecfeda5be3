"""An OpenTelemetry collector that writes into a bucket, and the generator that feeds it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.components.moto import CREDENTIALS, REGION, Moto
from tests.components.peers import peer
from tests.components.process import RunningProcess, free_port

_CONFIG = """
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{port}"}}}}}}
exporters:
  awss3:
    s3uploader:
      region: {region}
      s3_bucket: {bucket}
      s3_prefix: otel-raw
      endpoint: {endpoint}
      s3_force_path_style: true
      disable_ssl: true
      compression: gzip
    marshaler: otlp_proto
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    logs: {{receivers: [otlp], exporters: [awss3]}}
    metrics: {{receivers: [otlp], exporters: [awss3]}}
    traces: {{receivers: [otlp], exporters: [awss3]}}
"""


class Collector:
    def __init__(self, port: int) -> None:
        self._port = port

    def feed(self, signal: str, *options: str) -> int:
        """Send telemetry of a signal. Return the generator's own count of records, points or traces sent."""
        argv = [peer("telemetrygen"), signal, "--otlp-insecure", "--otlp-endpoint", f"127.0.0.1:{self._port}", *options]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        counts = [int(count) for count in re.findall(rf'{signal} generated\s+{{.*"{signal}": (\d+)', output)]
        assert counts, f"the generator did not say how much it sent: {output}"
        return sum(counts)


@contextmanager
def running_collector(folder: Path, moto: Moto, bucket: str) -> Iterator[Collector]:
    """Run a collector. Leaving the block makes it flush what it still holds."""
    program, port = peer("otelcol-lake", "otelcol-contrib"), free_port()
    config = folder / "otelcol.yaml"
    config.write_text(_CONFIG.format(port=port, region=REGION, bucket=bucket, endpoint=moto.endpoint))
    argv = [program, "--config", config]
    with RunningProcess.start(argv, log_path=folder / "otelcol.log", env=CREDENTIALS) as process:
        process.wait_for_port("127.0.0.1", port, 30)
        yield Collector(port)
        assert process.stop() == 0, process.tail()
