"""Pub/Sub with a fake client: pulling, acknowledging, and the translation of errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions as google
from google.pubsub_v1.types import PubsubMessage, PullResponse, ReceivedMessage

from lakerunner.intake.gcp import PubsubSource
from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.record import Recorder
from lakerunner.model.errors import BadInput, Denied, LakeError, Unavailable
from lakerunner.runtime.stop import Stop
from tests.intake import shapes
from tests.intake.conftest import Lake

SUBSCRIPTION = "projects/p/subscriptions/raw"


class FakeSubscriber:
    """Delivers what was not acknowledged, as Pub/Sub does, and knows only requests that the real one takes."""

    def __init__(self, *attributes: dict[str, str]) -> None:
        self.left = {f"ack-{number}": each for number, each in enumerate(attributes)}
        self.deadlines: dict[str, int] = {}
        self.error: Exception | None = None
        self.closed = False

    def pull(self, *, request: dict[str, Any], timeout: float, retry: Any) -> PullResponse:
        self._check(request, max_messages=int)
        if self.error is not None:
            raise self.error
        if not self.left:
            raise google.DeadlineExceeded("nothing")
        pulled = list(self.left.items())[: request["max_messages"]]
        return PullResponse(
            received_messages=[
                ReceivedMessage(ack_id=ack_id, message=PubsubMessage(attributes=attributes, data=b"{}"))
                for ack_id, attributes in pulled
            ]
        )

    def acknowledge(self, *, request: dict[str, Any]) -> None:
        self._check(request, ack_ids=list)
        if self.error is not None:
            raise self.error
        for ack_id in request["ack_ids"]:
            self.left.pop(ack_id, None)

    def modify_ack_deadline(self, *, request: dict[str, Any]) -> None:
        self._check(request, ack_ids=list, ack_deadline_seconds=int)
        self.deadlines.update(dict.fromkeys(request["ack_ids"], request["ack_deadline_seconds"]))

    def close(self) -> None:
        self.closed = True

    @staticmethod
    def _check(request: dict[str, Any], **fields: type) -> None:
        assert request["subscription"] == SUBSCRIPTION
        assert {name: type(value) for name, value in request.items() if name != "subscription"} == fields


@pytest.fixture
def gcp_lake(make_lake: Callable[..., Lake]) -> Lake:
    return make_lake(pubsub_subscription=SUBSCRIPTION, visibility_s=77)


def test_pulled_hidden_and_acknowledged(gcp_lake: Lake) -> None:
    good = [shapes.gcs(f"otel-raw/logs {number}.json") for number in range(3)]
    client = FakeSubscriber(*good, {"eventType": "OBJECT_FINALIZE"})
    source = PubsubSource(gcp_lake.settings, client)
    received = source.receive(10, 1)
    assert [event.key for each in received for event in each.event.objects] == [each["objectId"] for each in good]
    assert received[3].event.unreadable[0].reason == "no text at bucketId"
    assert set(client.deadlines.values()) == {77}
    source.nack(received[:1])
    assert client.deadlines["ack-0"] == 10
    source.ack(received)
    assert client.left == {}
    assert source.receive(10, 1) == []
    source.close()
    assert client.closed


def test_a_pull_that_the_server_ends_at_its_deadline_has_nothing(gcp_lake: Lake) -> None:
    """The server's reset may arrive before the client's own deadline; a reset long before the deadline is an outage."""
    client = FakeSubscriber()
    client.error = google.Cancelled("Stream removed (RST_STREAM)")
    source = PubsubSource(gcp_lake.settings, client)
    assert source.receive(10, 0) == []
    with pytest.raises(Unavailable, match="RST_STREAM"):
        source.receive(10, 60)


def test_acknowledged_only_after_the_ledger(gcp_lake: Lake, make_recorder: Callable[[Lake], Recorder]) -> None:
    """A bucket that nobody configured: rejected, recorded as such, and then acknowledged."""
    client = FakeSubscriber(shapes.gcs("otel-raw/logs_1.json", bucket="elsewhere"))
    source = PubsubSource(gcp_lake.settings, client)
    loop = SourceLoop(source, make_recorder(gcp_lake), 10)
    loop._handle(source.receive(10, 1), Stop())
    assert [(row.kind, row.bucket) for row in gcp_lake.rejected()] == [("foreign", "gs://elsewhere")]
    assert client.left == {}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (google.NotFound("x"), BadInput),
        (google.PermissionDenied("x"), Denied),
        (google.Unauthenticated("x"), Denied),
        (google.ServiceUnavailable("x"), Unavailable),
        (google.RetryError("x", None), Unavailable),
    ],
)
def test_errors_are_lake_errors(gcp_lake: Lake, error: Exception, kind: type[LakeError]) -> None:
    client = FakeSubscriber(shapes.gcs("a"))
    source = PubsubSource(gcp_lake.settings, client)
    client.error = error
    with pytest.raises(kind, match="cannot receive events from"):
        source.receive(1, 1)


def test_a_lost_acknowledgement_is_no_failure(gcp_lake: Lake, make_recorder: Callable[[Lake], Recorder]) -> None:
    client = FakeSubscriber(shapes.gcs("otel-raw/logs_1.json", bucket="elsewhere"))
    source = PubsubSource(gcp_lake.settings, client)
    received = source.receive(10, 1)
    client.error = google.DeadlineExceeded("slow")
    SourceLoop(source, make_recorder(gcp_lake), 10)._handle(received, Stop())
    assert len(client.left) == 1


def test_a_wrong_name_is_said(make_lake: Callable[..., Lake]) -> None:
    with pytest.raises(BadInput, match="projects/PROJECT/subscriptions/NAME"):
        PubsubSource(make_lake(pubsub_subscription="raw").settings, FakeSubscriber())


def test_no_credential_is_said(gcp_lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "absent.json"))
    with pytest.raises(Denied, match="cannot open"):
        PubsubSource(gcp_lake.settings)
