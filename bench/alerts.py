"""Alert latency: from the time of an event in a log line to the receipt of its alert by a webhook.

    python -m bench alerts [--events 100] [--every 0.5] [--quick]

It runs `lakerunner serve` as users do, with a materialization rule that counts lines by a field and an alert on its
series. Each event has a value of its own, and so an alert of its own. The peer is the target: 15 s at the median and
60 s at the 99th percentile.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson

from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from tests.ops.serve_process import ServeProcess

_RULES = """\
groups:
  - name: bench
    rules:
      - materialize: bench_events_total
        signal: logs
        match: '{service_name="bench"}'
        dimensions: [event]
      - alert: Event
        expr: sum by (event) (sum_over_time(bench_events_total[1m])) > 0
"""
_TIMEOUT_S = 180.0
_P50_S, _P99_S = 15.0, 60.0


class Webhook:
    """Keeps when it first heard of each event, and how often it was told that the event's alert fires."""

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}
        self.told: dict[str, int] = {}
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in body["alerts"]:
                    if alert["status"] == "firing":
                        event = alert["labels"]["event"]
                        webhook.heard.setdefault(event, time.time())
                        webhook.told[event] = webhook.told.get(event, 0) + 1
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--every", type=float, default=0.5)
    parser.add_argument("--quick", action="store_true", help="20 events")
    args = parser.parse_args()
    count = 20 if args.quick else args.events
    folder = Path(tempfile.mkdtemp(prefix="lakerunner-bench-"))
    webhook = Webhook()
    serve = ServeProcess(folder, module="lakerunner", LAKERUNNER_RULER_WEBHOOKS=webhook.url)
    try:
        serve.start().await_all_ready(300.0)
        rules = folder / "rules.yaml"
        rules.write_text(_RULES)
        command = [sys.executable, "-m", "lakerunner", "rules", "apply", str(rules), "--org", "default"]
        subprocess.run([*command, "--set", f"data.dir={folder}"], check=True)
        took = measure(Settings(data=DataSettings(dir=folder)), webhook, count, args.every)
    finally:
        serve.close()
        webhook.close()
        shutil.rmtree(folder, ignore_errors=True)
    for name, value, target in (
        ("p50", statistics.median(took), _P50_S),
        ("p99", sorted(took)[max(0, int(len(took) * 0.99) - 1)], _P99_S),
    ):
        line = {
            "bench": "alerts", "case": f"event to webhook, {name}", "value": round(value, 2), "unit": "s",
            "better": "lower", "peer": "target", "peer_value": target, "ratio": round(value / target, 3),
            "events": len(took), "told_again": sum(webhook.told.values()) - len(webhook.told),
        }  # fmt: skip
        sys.stdout.write(orjson.dumps(line).decode() + "\n")
    return 0


def measure(settings: Settings, webhook: Webhook, count: int, every_s: float) -> list[float]:
    """The seconds from each event to its alert. Everything runs on this machine, with one clock."""
    store = open_store(StoreConfig.of(settings))
    # Ingest reads the rules anew every few seconds.
    time.sleep(10.0)
    happened: dict[str, float] = {}
    for number in range(count):
        event, now_s = f"e{number}", time.time()
        line = {"timestamp": now_s, "service": "bench", "message": f"event {number}", "event": event}
        store.put(f"logs-raw/{event}.jsonl", orjson.dumps(line) + b"\n")
        happened[event] = now_s
        time.sleep(every_s)
    end_s = time.monotonic() + _TIMEOUT_S
    while len(webhook.heard) < count and time.monotonic() < end_s:
        time.sleep(0.2)
    if len(webhook.heard) < count:
        raise SystemExit(f"the webhook heard of {len(webhook.heard)} of {count} events in time")
    return [webhook.heard[event] - happened[event] for event in happened]


if __name__ == "__main__":
    sys.exit(main())
