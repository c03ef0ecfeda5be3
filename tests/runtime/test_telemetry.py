"""Spans are exported when an endpoint is set, and log lines carry their fields."""

import json
import os
import subprocess
import sys
import threading

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakerunner.runtime.http import HttpServer

SCRIPT = """
import os
from lakerunner.runtime.settings.load import load_settings
from lakerunner.runtime.telemetry import configure_telemetry, log, span
flush = configure_telemetry("toy", load_settings(env=os.environ))
with span("ingest", org="acme", item="7"):
    log().info("item committed", rows=3)
log().info("outside")
flush()
"""


def run(**settings: str) -> list[dict[str, object]]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **settings}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_lines_within_a_span_say_what_they_are_about() -> None:
    inside, outside = run()
    assert inside["event"] == "item committed"
    assert (inside["org"], inside["item"], inside["rows"], inside["role"]) == ("acme", "7", 3, "toy")
    assert "org" not in outside


def test_spans_go_to_the_endpoint() -> None:
    bodies: list[bytes] = []
    got = threading.Event()

    async def traces(request: Request) -> Response:
        bodies.append(await request.body())
        got.set()
        return Response(status_code=200)

    server = HttpServer("127.0.0.1", 0, [Route("/v1/traces", traces, methods=["POST"])])
    server.start()
    try:
        run(LAKERUNNER_TELEMETRY_OTLP_ENDPOINT=f"http://127.0.0.1:{server.port}")
        assert got.wait(10)
    finally:
        server.close()
    assert b"ingest" in bodies[0]
    assert b"lakerunner-toy" in bodies[0]
