"""The service map over HTTP and as the command line draws it, of spans that went through ingest."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData

from lakerunner.cli.verbs.query_traces import dot, mermaid, table
from lakerunner.index import orgs
from lakerunner.model.half_call import unpacked
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signals.metrics import METRICS
from lakerunner.pipeline.derive.edges import external_edges
from lakerunner.pipeline.derive.spans import DeriveOptions, edge_metrics, metric_tables
from lakerunner.pipeline.ingest.task import IngestTask, run_task, write_part
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from tests.formats.otlp_samples import pairs
from tests.query.worker_lake import WorkerLake
from tests.serve.served import AuthOf, serving

_NOW_S = int(time.time()) // 10 * 10
_BANK = 'the "bank"'
#: Client, server, calls, failed ones, milliseconds.
_CALLS = (("gate", "cart", 30, 3, 40), ("gate", "search", 10, 0, 5), ("cart", "stock", 20, 20, 80))


def _spans() -> TracesData:
    batch = TracesData()

    def add(service: str, **of_span: Any) -> Span:
        parent = batch.resource_spans.add()
        parent.resource.attributes.extend(pairs({"service.name": service}))
        at = (_NOW_S - 300) * 10**9
        return parent.scope_spans.add().spans.add(start_time_unix_nano=at, name="call", **of_span)

    for edge, (client, server, calls, failed, ms) in enumerate(_CALLS):
        for number in range(calls):
            ids = {"trace_id": b"%016d" % (edge * 1000 + number)}
            own, called = b"%08d" % number, b"s%07d" % number
            code = Status.STATUS_CODE_ERROR if number < failed else Status.STATUS_CODE_UNSET
            for service, span in (
                (client, {"span_id": own, "kind": Span.SPAN_KIND_CLIENT}),
                (server, {"span_id": called, "parent_span_id": own, "kind": Span.SPAN_KIND_SERVER}),
            ):
                made = add(service, **ids, **span)
                made.end_time_unix_nano, made.status.code = made.start_time_unix_nano + ms * 10**6, code
    for number, attributes in enumerate(({"db.system": "redis"}, {"peer.service": _BANK})):
        made = add("cart", trace_id=b"x" * 16, span_id=b"x%07d" % number, kind=Span.SPAN_KIND_CLIENT)
        made.end_time_unix_nano = made.start_time_unix_nano + 10**6
        made.attributes.extend(pairs(attributes))
    return batch


def _ingested(lake: WorkerLake, org_id: uuid.UUID) -> None:
    config, item_id = StoreConfig.of(lake.settings), fresh_id()
    meta = lake.store.put(f"otel-raw/{org_id}/c/traces_{item_id}.binpb", _spans().SerializeToString())
    raw = RawObject(org_id, "c", "traces", config.url, meta.key, version_of(meta), meta.size_bytes)
    derive = DeriveOptions(slot=1, peers=("attr_peer_service",))
    task = IngestTask(item_id, org_id, "c", "traces", (raw,), {config.url: config}, config, derive=derive)
    result = run_task(task)
    assert result.error is None
    # What the next item does with a client that waited in vain.
    made = edge_metrics(external_edges(unpacked([result.halves])), 2, task.options.metrics.series_key)
    assert made is not None
    tables = metric_tables([made])
    assert tables is not None
    part = write_part(org_id, "c", METRICS, tables, lake.store, time.time_ns())
    lake.commit(org_id, [*result.segments, part])


@pytest.fixture(scope="module")
def url(lake: WorkerLake) -> Iterator[str]:
    with lake.database.transaction() as tx:
        org_id = orgs.create_org(tx, "mapped").org_id
    _ingested(lake, org_id)
    with serving(lake, AuthOf(org_id)) as serve:
        yield serve().url


def _map(url: str, **params: Any) -> Any:
    return httpx.get(f"{url}/api/v1/servicemap", params=params, timeout=60)


def test_nodes_and_edges(url: str) -> None:
    found = _map(url, start=_NOW_S - 600, end=_NOW_S).json()
    edges = {(edge["client"], edge["server"]): edge for edge in found["edges"]}
    for client, server, calls, failed, ms in _CALLS:
        edge = edges.pop((client, server))
        assert (edge["calls"], edge["failed"], edge["connectionType"]) == (calls, failed, "")
        assert edge["rate"] == pytest.approx(calls / 600) and edge["errorRatio"] == pytest.approx(failed / calls)
        for quantile in ("p50Seconds", "p90Seconds", "p99Seconds"):
            assert edge[quantile] == pytest.approx(ms / 1000, rel=0.1)
    assert {edge["connectionType"] for edge in edges.values()} == {"database", "virtual_node"}
    nodes = {node["name"]: node for node in found["nodes"]}
    assert {name: node["type"] for name, node in nodes.items()} == {
        **dict.fromkeys(("gate", "cart", "search", "stock"), "service"),
        "redis": "database",
        _BANK: "external",
    }
    assert (nodes["cart"]["in"], nodes["cart"]["out"], nodes["cart"]["failed"]) == (30, 22, 3)
    assert nodes["gate"]["in"] == 0 and found["warnings"] == []


def test_a_time_without_calls_is_empty(url: str) -> None:
    found = _map(url, start=_NOW_S - 7200, end=_NOW_S - 3600).json()
    assert found["nodes"] == [] and found["edges"] == []


def test_a_range_that_ends_before_it_begins_is_refused(url: str) -> None:
    answer = _map(url, start=_NOW_S, end=_NOW_S - 60)
    assert answer.status_code == 400 and "start must be before end" in answer.text


def test_drawings(url: str) -> None:
    found = _map(url, start=_NOW_S - 600, end=_NOW_S).json()
    lines = table(found)
    assert lines[0].split() == ["CLIENT", "SERVER", "CALLS/S", "ERRORS", "P50", "P99", "TYPE"]
    assert len(lines) == 1 + len(found["edges"])
    assert next(line for line in lines if line.split()[:2] == ["cart", "stock"]).split()[2:4] == ["0.03333", "100.0%"]
    graph = dot(found).splitlines()
    assert graph[0] == "digraph services {" and graph[-1] == "}"
    assert '  "redis" [shape=cylinder];' in graph and '  "the \\"bank\\"" [shape=ellipse];' in graph
    assert '  "cart" -> "stock" [label="0.0333/s" color="red"];' in graph
    assert '  "gate" -> "search" [label="0.0167/s"];' in graph
    chart = mermaid(found).splitlines()
    names = {node["name"]: f"n{number}" for number, node in enumerate(found["nodes"])}
    assert chart[0] == "flowchart LR"
    assert f'  {names["redis"]}[("redis")]' in chart and f'  {names["gate"]}["gate"]' in chart
    assert f'  {names[_BANK]}(["the #quot;bank#quot;"])' in chart
    assert f"  {names['gate']} -->|0.0167/s| {names['search']}" in chart


def test_drawings_of_nothing() -> None:
    nothing = {"nodes": [], "edges": []}
    assert len(table(nothing)) == 1
    assert dot(nothing).splitlines()[-1] == "}" and mermaid(nothing) == "flowchart LR"
