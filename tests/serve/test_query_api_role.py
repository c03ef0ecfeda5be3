"""The role as a process: started, asked, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]


def test_it_answers_and_ends(database_url: str, free_port: int, tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKERUNNER_")}
    settings = {
        "LAKERUNNER_INDEX_URL": database_url,
        "LAKERUNNER_DATA_DIR": str(tmp_path),
        "LAKERUNNER_HTTP_PORT": str(free_port),
        "LAKERUNNER_AUTH_REQUIRED": "false",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "lakerunner", "query-api"],
        env={**inherited, **settings, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.PIPE,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{free_port}") as client:
            _until_ready(client, process)
            answer = client.post("/api/v1/query", data={"query": "1+1", "time": "4"})
            assert answer.json()["data"]["result"] == [4, "2"]
            assert client.get("/api/v1/query", params={"query": "up"}).json()["data"]["result"] == []
            assert client.get("/ready").status_code == 200
            process.send_signal(signal.SIGTERM)
            while client.get("/readyz").status_code == 200:
                time.sleep(0.01)
            # Load balancers need a while to notice. Until then it answers.
            assert client.get("/api/v1/query", params={"query": "up"}).status_code == 200
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.communicate()


def _until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, "it ended by itself"
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("it did not become ready")
