"""The NetworkPolicies against the connections that a real cluster opened.

`recorded_connections.txt` was written by `python -m tests.cluster.faults --connections FILE` over all faults.
`tests/cluster/test_walk.py` compares the connections of a deployment that it starts itself.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.deploy.chart import Object, render
from tests.deploy.connections import CONNECTIONS, DEPLOY, peers_of
from tests.deploy.policies import allows, allows_in, allows_out

#: The first test may build helm's renderer.
pytestmark = pytest.mark.timeout(450)
RECORDED = (Path(__file__).parent / "recorded_connections.txt").read_text().splitlines()
EXECUTOR = "spark-executor"
PORTS = CONNECTIONS["ports"]
#: What `make cluster` stands on, in values of the chart.
SERVERS = ("config.bus.kind=kafka", "config.bus.brokers=kafka:9092", "config.intake.sqs_url=https://sqs/1/telemetry")
#: The peers of `networkPolicies.peers` in spark-external.yaml.
SPARK_PLACE = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "spark"}}}]
BUCKET_PORT = 9000

#: Arrows that the cluster did not use, and why.
UNUSED = {
    ("query-api", "bucket"): "it reads the bucket itself only where there are no workers",
    ("ruler", "bucket"): "no rules were declared",
    ("ruler", "query-worker"): "no rules were declared",
    ("ruler", "receivers"): "no receivers were configured",
    ("monitor", "receivers"): "no receivers were configured",
    ("sweeper", "bucket"): "nothing was old enough to be deleted",
    ("rollup", "spark"): "only logs were sent; a session starts with the first item",
    ("delete", "spark"): "nobody asked to delete rows",
    ("backfill", "spark"): "no rules were declared",
    ("canary", "index"): "it was off",
    ("canary", "bucket"): "it was off",
    ("canary", "query-api"): "it was off",
    ("migrate", "index"): "it ends before roles start",
}


@cache
def rendered(values: str) -> list[Object]:
    return render(DEPLOY / f"helm/values/{values}.yaml", *SERVERS)


def parsed(line: str) -> tuple[str, str, str]:
    caller, _, rest = line.partition(" -> ")
    callee, _, port = rest.partition(" at ")
    return caller, callee, port


def is_allowed(caller: str, callee: str, port: str) -> bool:
    """By the policies of a release with an external Spark cluster, and of one with executors as pods."""
    external, pods = rendered("spark-external"), rendered("spark-kubernetes")
    if callee in CONNECTIONS["peers"]:
        if caller == EXECUTOR:
            return allows_out(pods, caller, [], CONNECTIONS["peers"][callee]["port"])
        place = SPARK_PLACE if callee == "spark" else []
        at = BUCKET_PORT if callee == "bucket" else CONNECTIONS["peers"][callee]["port"]
        return allows_out(external, caller, place, at)
    if not allows(pods, caller, callee, PORTS[port]):
        return False
    if caller == EXECUTOR:
        return callee == EXECUTOR or allows_in(external, callee, SPARK_PLACE, PORTS[port])
    if callee == EXECUTOR:
        return allows_out(external, caller, SPARK_PLACE, PORTS[port])
    return allows(external, caller, callee, PORTS[port])


@pytest.mark.parametrize("line", RECORDED)
def test_what_the_cluster_opened_is_allowed(line: str) -> None:
    assert is_allowed(*parsed(line)), line


def test_what_has_no_arrow_is_refused() -> None:
    assert not is_allowed("query-worker", "index", "")
    assert not is_allowed("boxer-ingest", "bucket", "")
    assert not is_allowed("relay", "query-worker", "flight")
    assert not is_allowed(EXECUTOR, "index", "")
    assert not is_allowed(EXECUTOR, "relay", "spark-driver")


def test_every_arrow_was_used_or_has_its_reason() -> None:
    used = {parsed(line)[:2] for line in RECORDED}
    arrows = {(caller, callee) for caller in CONNECTIONS["calls"] for callee in peers_of(caller)}
    assert set(UNUSED) == arrows - used
