"""docs/deploy.md works as it is printed: a test types its commands, against real servers, with one host."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.connections import ConnectionWatch
from tests.cluster.deployment import Deployment
from tests.cluster.page import read_page
from tests.cluster.servers import BUCKET
from tests.deploy.connections import peers_of
from tests.faults.clean_roles import until

#: Nothing here waits for a timer of minutes: what takes long is the start of Java on cores that others use too.
_VISIBLE_S = 240.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


def visible_rows(deployment: Deployment, org: str) -> int:
    """Asked over HTTP: a command takes the time of a whole Python to start, which Spark needs for its own start."""
    now_s = time.time()
    query = urllib.parse.urlencode({"query": '{service_name=~".+"}', "start": now_s - 3_600, "end": now_s + 60})
    request = urllib.request.Request(
        f"{deployment.hosts[0].api}/loki/api/v1/query_range?{query}",
        headers={"Authorization": f"Bearer {deployment.keys[org]}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        streams = json.loads(answer.read())["data"]["result"]
    return sum(len(each["values"]) for each in streams)


def test_the_page_has_every_step() -> None:
    verbs = [command[0] for command in read_page().commands]
    assert verbs == ["config", "migrate", "doctor", "org", "org", "profile", "profile", "key", "key", "query"]


def test_the_walk_ends_with_rows_that_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a Spark session of this process leaves it: a Python that the deployment's user may not be allowed to run.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    # Not below pytest's own folder, which ordinary users cannot enter.
    with tempfile.TemporaryDirectory(prefix="lakerunner-walk-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        with (
            # Of all processes, Kafka takes most of the CPU time, and most of that for its partitions.
            Deployment(folder, hosts=1, with_spark=False, bus={"partitions": 1}) as deployment,
            ConnectionWatch(deployment).watching() as connections,
        ):
            assert "WRONG" not in deployment.run("doctor")
            now_ns = time.time_ns()
            lines = [{"timestamp": now_ns + nth, "service": "shop", "message": f"order {nth}"} for nth in range(3)]
            body = "\n".join(map(json.dumps, lines)).encode()
            s3, _ = deployment.servers.clients()
            s3.put_object(Bucket=BUCKET, Key="otel-raw/acme/logs_1.json", Body=body)
            (ask,) = [command for command in deployment.page.commands if command[0] == "query"]
            place = {"LAKERUNNER_API_URL": deployment.hosts[0].api}

            def answer(org: str) -> str:
                return deployment.run(*ask, **place, LAKERUNNER_API_KEY=deployment.keys[org])

            try:
                until(lambda: visible_rows(deployment, "acme") == len(lines), "acme has its rows", _VISIBLE_S, 1.0)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{deployment.hosts[0].log_tails()}") from None
            assert "order 2" in answer("acme")
            assert "order" not in answer("globex")
    # tests/deploy compares the arrows with the NetworkPolicies.
    used = {(each.caller, each.callee) for each in connections}
    assert {arrow for arrow in used if arrow[1] not in peers_of(arrow[0])} == set()
    # Those that stay open; short ones may be missed.
    assert used > {("pubsub", "queue"), ("relay", "bus"), ("monitor", "index")}
