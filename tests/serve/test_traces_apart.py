"""Traces, tags and the service map of one org are not seen by another."""

from __future__ import annotations

import time
import uuid

import httpx
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from tests.formats.otlp_samples import pairs
from tests.serve.served import TwoOrgs, serving

TRACE = "5ec1e7" + "0" * 26
PATHS = (
    f"/api/traces/{TRACE}",
    f"/api/v2/traces/{TRACE}",
    f"/api/v1/traces/{TRACE}",
    f"/api/v1/traces/{TRACE}/logs",
    "/api/search/tags",
    "/api/v2/search/tags",
    "/api/search/tag/secret_key/values",
    "/api/v2/search/tag/span.secret_key/values",
    "/api/v1/servicemap",
    "/api/search?q=%7B%20%7D",
    "/api/search?q=%7B%20name%20%3D%20%22secret_name%22%20%7D%20%7C%20select(span.secret_key)",
    "/api/search?tags=secret_key%3Dsecret_value",
    "/api/metrics/query_range?q=%7B%7D%20%7C%20rate()%20by%20(name)&since=1h",
    "/api/metrics/query?q=%7B%7D%20%7C%20count_over_time()%20by%20(span.secret_key)&since=1h",
    "/api/metrics/query_range?q=%7B%7D%20%7C%20compare(%7B%20status%20%3D%20error%20%7D)&since=1h",
    f"/api/v2/traces/{TRACE}?q=%7B%20%7D",
    "/api/v2/search/tag/name/values?q=%7B%20duration%20%3E%200%20%7D",
    "/api/v2/search/tag/rootServiceName/values",
    "/api/v1/spans/query?q=%7B%20%7D",
)


def ingest(two_orgs: TwoOrgs, org_id: uuid.UUID) -> None:
    batch = TracesData()
    parent = batch.resource_spans.add()
    parent.resource.attributes.extend(pairs({"service.name": "secret_service"}))
    parent.scope_spans.add().spans.add(
        trace_id=bytes.fromhex(TRACE),
        span_id=b"s" * 8,
        name="secret_name",
        start_time_unix_nano=time.time_ns() - 10**9,
        end_time_unix_nano=time.time_ns(),
        attributes=pairs({"secret_key": "secret_value"}),
    )
    lake, item_id = two_orgs.lake, fresh_id()
    config = StoreConfig.of(lake.settings)
    key = f"otel-raw/{org_id}/c/traces_{item_id}.binpb"
    meta = lake.store.put(key, batch.SerializeToString())
    raw = RawObject(org_id, "c", "traces", config.url, key, version_of(meta), meta.size_bytes)
    result = run_task(IngestTask(item_id, org_id, "c", "traces", (raw,), {config.url: config}, config))
    assert result.error is None and result.segments
    lake.commit(org_id, list(result.segments))


def test_traces_of_another_org_are_not_seen(two_orgs: TwoOrgs) -> None:
    ingest(two_orgs, two_orgs.theirs)
    with serving(two_orgs.lake) as serve:
        url = serve(two_orgs.auth).url
        for path in PATHS:
            theirs, ours = (
                httpx.get(url + path, headers={"Authorization": f"Bearer {two_orgs.secrets[who]}"}, timeout=30)
                for who in ("theirs", "ours")
            )
            assert theirs.status_code == 200, (path, theirs.text)
            assert ours.status_code in (200, 404) and "secret_" not in ours.text.replace("span.secret_key", "")
            if "/logs" not in path and "servicemap" not in path:
                assert "secret_" in theirs.text, path
            assert httpx.get(url + path, timeout=30).status_code == 401
