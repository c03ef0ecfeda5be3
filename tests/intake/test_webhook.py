"""The webhook over a real server: who may post, what is answered, and that 2xx means durable."""

from __future__ import annotations

import base64
import json
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from lakerunner.index.api_keys import Scope, create_key
from lakerunner.index.orgs import create_org
from lakerunner.intake.record import Recorder
from lakerunner.intake.webhook import PATH, webhook_routes
from lakerunner.runtime.http import HttpServer
from lakerunner.runtime.settings import AuthSettings, StoreSettings
from tests.components.moto import Moto
from tests.components.postgres import PostgresServer
from tests.intake import shapes
from tests.intake.conftest import ORG, Lake, S3Lake

OTEL = "otel-raw/year=2026/month=11/day=15/hour=21/minute=32/logs_313124979.binpb.gz"


class Webhook:
    def __init__(self, s3_lake: S3Lake, client: httpx.Client) -> None:
        self.s3_lake, self.lake, self._client = s3_lake, s3_lake.lake, client
        self.secret = self.new_key([Scope.INGEST], ORG)
        self.base_url = client.base_url

    def new_key(self, scopes: list[Scope], org_id: uuid.UUID) -> str:
        with self.lake.database.transaction() as tx:
            return create_key(tx, "k", scopes, [org_id]).secret

    def post(self, body: str | bytes, **headers: str) -> httpx.Response:
        headers = headers or {"authorization": f"Bearer {self.secret}"}
        return self._client.post(PATH, content=body, headers=headers)


@pytest.fixture
def serve() -> Iterator[Callable[[S3Lake], Webhook]]:
    with ExitStack() as stack:

        def serve(s3_lake: S3Lake) -> Webhook:
            lake = s3_lake.lake
            recorder = Recorder(lake.settings, lake.database)
            stack.callback(recorder.close)
            server = HttpServer("127.0.0.1", 0, webhook_routes(lake.settings, lake.database, recorder))
            server.start()
            stack.callback(server.close)
            client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30))
            return Webhook(s3_lake, client)

        yield serve


@pytest.fixture
def webhook(make_s3_lake: Callable[..., S3Lake], serve: Callable[[S3Lake], Webhook]) -> Webhook:
    s3_lake = make_s3_lake(webhook_max_bytes=20_000)
    s3_lake.lake.add_profile("otel-raw/")
    return serve(s3_lake)


@pytest.mark.parametrize("sender", [shapes.minio, shapes.versitygw])
@pytest.mark.parametrize("key", [OTEL, "otel-raw/a b+c%20/logs_1.json"])
def test_events_of_minio_and_versitygw(webhook: Webhook, sender: Callable[..., str], key: str) -> None:
    webhook.s3_lake.put(key, b"12345")
    answer = webhook.post(sender(key, bucket=webhook.s3_lake.bucket_name))
    assert (answer.status_code, answer.json()) == (200, {"recorded": 1})
    webhook.lake.assert_each_once([key])
    assert webhook.lake.ledger()[0]["size_bytes"] == 5
    assert webhook.post(sender(key, bucket=webhook.s3_lake.bucket_name)).json() == {"known": 1}


def test_both_objects_that_one_text_may_mean_are_recorded(webhook: Webhook) -> None:
    keys = ["otel-raw/logs a.json", "otel-raw/logs+a.json"]
    for key in keys:
        webhook.s3_lake.put(key)
    answer = webhook.post(shapes.versitygw("otel-raw/logs+a.json", bucket=webhook.s3_lake.bucket_name))
    assert answer.json() == {"recorded": 2}
    webhook.lake.assert_each_once(keys)


def test_ways_to_send_the_key(webhook: Webhook) -> None:
    basic = base64.b64encode(f"any:{webhook.secret}".encode()).decode()
    for headers in ({"authorization": f"Basic {basic}"}, {"x-api-key": webhook.secret}):
        assert webhook.post(shapes.TEST_EVENT, **headers).json() == {"ignored": 1}


@pytest.mark.parametrize(
    "headers",
    [{"authorization": ""}, {"authorization": "Bearer lrk_wrong"}, {"authorization": "Basic !"}, {"x-api-key": "no"}],
)
def test_without_a_key_nothing_is_taken(webhook: Webhook, headers: dict[str, str]) -> None:
    answer = webhook.post(shapes.minio(OTEL, bucket=webhook.s3_lake.bucket_name), **headers)
    assert answer.status_code == 401
    assert "API key" in answer.json()["error"] or "credentials" in answer.json()["error"]
    assert webhook.lake.rejected() == []


def test_a_key_without_the_scope_is_forbidden(webhook: Webhook) -> None:
    secret = webhook.new_key([Scope.QUERY], ORG)
    assert webhook.post("{}", authorization=f"Bearer {secret}").status_code == 403


def test_a_key_announces_objects_of_its_own_orgs_only(webhook: Webhook) -> None:
    other = uuid.uuid4()
    with webhook.lake.database.transaction() as tx:
        create_org(tx, "other", other)
    secret = webhook.new_key([Scope.INGEST], other)
    webhook.s3_lake.put(OTEL)
    body = shapes.minio(OTEL, bucket=webhook.s3_lake.bucket_name)
    assert webhook.post(body, authorization=f"Bearer {secret}").json() == {"denied": 1}
    assert webhook.lake.ledger() == []
    assert webhook.post(body).json() == {"recorded": 1}


def test_rubbish_is_kept_and_taken_so_that_its_sender_goes_on(webhook: Webhook) -> None:
    answer = webhook.post("rubbish")
    assert (answer.status_code, answer.json()) == (200, {"malformed": 1})
    (row,) = webhook.lake.rejected()
    assert (row.kind, row.source, row.body) == ("malformed", "http", "rubbish")


def test_a_foreign_bucket_is_refused(webhook: Webhook) -> None:
    assert webhook.post(shapes.minio(OTEL, bucket="elsewhere")).json() == {"foreign": 1}


def test_a_body_that_is_too_large_is_refused(webhook: Webhook) -> None:
    answer = webhook.post(b"x" * 20_001)
    assert answer.status_code == 413
    assert "intake.webhook_max_bytes" in answer.json()["hint"]


def begin_post(webhook: Webhook, secret: str) -> tuple[int, str]:
    """Send the head of a request and nothing of its body; return what is answered."""
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\nContent-Length: 100\r\n\r\n"
    url = webhook.base_url
    with socket.create_connection((url.host, url.port or 0), timeout=20) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(65_536).decode()
    return int(answer.split()[1]), answer


def test_the_key_is_checked_before_the_body_is_read(webhook: Webhook) -> None:
    assert begin_post(webhook, "lrk_wrong")[0] == 401
    assert begin_post(webhook, webhook.new_key([Scope.QUERY], ORG))[0] == 403


def test_a_body_that_does_not_come_is_not_awaited(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.runtime.http_body.MAX_BODY_S", 0.05)
    status, answer = begin_post(webhook, webhook.secret)
    assert (status, "did not arrive within 0.05 s" in answer) == (408, True)
    assert webhook.lake.rejected() == []


def test_an_admin_key_of_an_org_announces_objects_of_that_org_only(webhook: Webhook) -> None:
    other = uuid.uuid4()
    with webhook.lake.database.transaction() as tx:
        create_org(tx, "other", other)
        everywhere = create_key(tx, "root", [Scope.ADMIN], []).secret
    webhook.s3_lake.put(OTEL)
    body = shapes.minio(OTEL, bucket=webhook.s3_lake.bucket_name)
    secret = webhook.new_key([Scope.ADMIN], other)
    assert webhook.post(body, authorization=f"Bearer {secret}").json() == {"denied": 1}
    assert webhook.post(body, authorization=f"Bearer {everywhere}").json() == {"recorded": 1}


def test_an_empty_body_is_a_test_of_the_connection(webhook: Webhook) -> None:
    assert (webhook.post("").status_code, webhook.lake.rejected()) == (200, [])


def test_index_down_is_503_and_the_event_gets_in_afterwards(webhook: Webhook, postgres_server: PostgresServer) -> None:
    webhook.s3_lake.put(OTEL)
    body = shapes.minio(OTEL, bucket=webhook.s3_lake.bucket_name)
    postgres_server.stop()
    try:
        answer = webhook.post(body)
    finally:
        postgres_server.start()
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert webhook.post(body).json() == {"recorded": 1}


def test_bucket_down_is_503(
    make_lake: Callable[..., Lake], moto: Moto, serve: Callable[[S3Lake], Webhook], tmp_path: Path
) -> None:
    store = StoreSettings(url="s3://lake", endpoint="http://127.0.0.1:9", region="us-east-1", allow_http=True,
                          max_attempts=1)  # fmt: skip
    lake = make_lake(store)
    lake.settings = lake.settings.model_copy(update={"auth": AuthSettings(required=False)})
    lake.add_profile("otel-raw/")
    webhook = serve(S3Lake(lake, "lake", "", None, None))
    answer = webhook.post(shapes.minio(OTEL))
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert lake.ledger() == []


def test_many_records_in_one_post(webhook: Webhook) -> None:
    keys = [f"otel-raw/logs_{number}.json" for number in range(30)]
    for key in keys:
        webhook.s3_lake.put(key)
    records = [shapes.s3_record(key, bucket=webhook.s3_lake.bucket_name) for key in keys]
    assert webhook.post(json.dumps({"Records": records})).json() == {"recorded": 30}
    webhook.lake.assert_each_once(keys)
