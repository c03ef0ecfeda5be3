"""`logcli`, unmodified, against a running API. It is a peer: without its binary, the tests are skipped."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.components.peers import peer
from tests.query.ingesting import ingest
from tests.query.worker_lake import WorkerLake
from tests.serve.log_requests import S, log_request, org_with_logs
from tests.serve.served import AuthOf, serving

NOW_S = int(time.time()) - 300
LINES = [(NOW_S * S + number * S, f'msg="order {number}" took={number}ms') for number in range(1_500)]
TIMEOUT_S = 60


@dataclass(frozen=True)
class Logcli:
    binary: Path
    url: str
    lake: WorkerLake
    org_id: uuid.UUID

    def __call__(self, *arguments: str) -> str:
        command = [str(self.binary), "--quiet", f"--addr={self.url}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def logcli(lake: WorkerLake) -> Iterator[Logcli]:
    binary = peer("logcli")
    org_id = org_with_logs(lake, [log_request("cart", LINES), log_request("shop", LINES[:10], level="ERROR")])
    with serving(lake, AuthOf(org_id)) as serve:
        yield Logcli(binary, serve().url, lake, org_id)


def _written(time_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))


TIMES = (f"--from={_written(NOW_S - 60)}", f"--to={_written(NOW_S + 1_800)}")


def test_entries_in_pages(logcli: Logcli) -> None:
    newest = logcli("query", *TIMES, "--limit=3", '{service_name="cart"} |= "order"')
    assert [f"order {number}" in newest for number in (1499, 1498, 1497, 1496)] == [True, True, True, False]
    every = logcli("query", *TIMES, "--limit=1500", "--batch=400", "--forward", "-o", "raw", '{service_name="cart"}')
    assert every.splitlines() == [line for _, line in LINES]


def test_values(logcli: Logcli) -> None:
    query = 'sum by (service_name) (count_over_time({service_name=~".+"} | logfmt | took > 5ms [1h]))'
    found = json.loads(logcli("instant-query", f"--now={_written(NOW_S + 1_800)}", query))
    assert {each["metric"]["service_name"]: each["value"][1] for each in found} == {"cart": "1494", "shop": "4"}
    matrix = json.loads(logcli("query", *TIMES, "--step=60s", query))
    assert len(matrix) == 2 and len(matrix[0]["values"]) > 20


def test_discovery(logcli: Logcli) -> None:
    assert logcli("labels", *TIMES).split() == ["service_name"]
    assert logcli("labels", *TIMES, "service_name").split() == ["cart", "shop"]
    assert logcli("series", *TIMES, '{service_name="cart"}').strip() == '{service_name="cart"}'
    stats = logcli("stats", *TIMES, '{service_name="cart"}')
    assert "streams: 1" in stats and "entries: 1500" in stats
    volume = json.loads(logcli("volume", *TIMES, '{service_name=~".+"}'))
    assert [each["metric"]["service_name"] for each in volume] == ["cart", "shop"]
    assert json.loads(logcli("volume_range", *TIMES, "--step=10m", '{service_name="cart"}'))
    fields = logcli("detected-fields", *TIMES, '{service_name="cart"}')
    assert "label: took\t\ttype: duration" in fields and "label: number" in fields


def test_tail(logcli: Logcli) -> None:
    command = [str(logcli.binary), "--quiet", f"--addr={logcli.url}", "query", "--tail", "-o", "raw"]
    query = '{service_name="cart"} |= "fresh"'
    with subprocess.Popen([*command, query], stdout=subprocess.PIPE, text=True) as tailing:
        try:
            time.sleep(1.0)
            ingest(logcli.lake, logcli.org_id, [log_request("cart", [(time.time_ns(), "fresh one"), (1, "old")])])
            assert tailing.stdout is not None
            assert tailing.stdout.readline().strip() == "fresh one"
        finally:
            tailing.kill()
