"""Pull GCS's events from a Pub/Sub subscription."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lakerunner.intake.event_gcs import parse_gcs
from lakerunner.intake.optional_module import require_module
from lakerunner.intake.source import ReceivedEvent
from lakerunner.model.errors import BadInput, Denied, LakeError, Unavailable
from lakerunner.runtime.settings import Settings

_SUBSCRIPTION = re.compile(r"projects/[^/]+/subscriptions/[^/]+")
_RETRY_AFTER_S = 10
#: Pub/Sub's longest acknowledgement deadline.
_MAX_DEADLINE_S = 600


class PubsubSource:
    name = "gcp"
    wait_s = 5.0
    trouble = None

    def __init__(self, settings: Settings, client: Any = None) -> None:
        self._subscription = settings.intake.pubsub_subscription
        if not _SUBSCRIPTION.fullmatch(self._subscription):
            raise BadInput(
                f"cannot use {self._subscription!r}: it is not the name of a subscription",
                hint="write projects/PROJECT/subscriptions/NAME",
                where="intake.pubsub_subscription",
            )
        self._errors = require_module("google.api_core.exceptions", "gcp", "intake.pubsub_subscription")
        auth_errors = require_module("google.auth.exceptions", "gcp", "intake.pubsub_subscription")
        pubsub = require_module("google.cloud.pubsub_v1", "gcp", "intake.pubsub_subscription")
        self._deadline_s = min(settings.intake.visibility_s, _MAX_DEADLINE_S)
        if client is None:
            try:
                # The client itself finds PUBSUB_EMULATOR_HOST, a key file or the machine's identity.
                client = pubsub.SubscriberClient()
            except auth_errors.GoogleAuthError as error:
                raise Denied(
                    f"cannot open {self._subscription}: {error}", hint="give this process credentials"
                ) from None
        self._client = client

    def receive(self, max_events: int, timeout_s: float) -> list[ReceivedEvent]:
        request = {"subscription": self._subscription, "max_messages": max_events}
        started = time.monotonic()
        with self._lake_errors("receive events from"):
            try:
                answer = self._client.pull(request=request, timeout=timeout_s, retry=None)
            except self._errors.DeadlineExceeded:
                return []
            except self._errors.Cancelled:
                # The server keeps the deadline too, and its reset of the stream may arrive before our own clock rings.
                if time.monotonic() - started < timeout_s / 2:
                    raise
                return []
        received = [
            ReceivedEvent(each.ack_id, parse_gcs(dict(each.message.attributes))) for each in answer.received_messages
        ]
        if received:
            # The subscription's own deadline may be 10 s, which is too short while a store has problems.
            self._extend(received, self._deadline_s)
        return received

    def ack(self, events: Sequence[ReceivedEvent]) -> None:
        with self._lake_errors("acknowledge events to"):
            self._client.acknowledge(
                request={"subscription": self._subscription, "ack_ids": [event.receipt for event in events]}
            )

    def nack(self, events: Sequence[ReceivedEvent]) -> None:
        self._extend(events, _RETRY_AFTER_S)

    def close(self) -> None:
        self._client.close()

    def _extend(self, events: Sequence[ReceivedEvent], deadline_s: int) -> None:
        with self._lake_errors("set deadlines of"):
            self._client.modify_ack_deadline(
                request={
                    "subscription": self._subscription,
                    "ack_ids": [event.receipt for event in events],
                    "ack_deadline_seconds": deadline_s,
                }
            )

    @contextmanager
    def _lake_errors(self, act: str) -> Iterator[None]:
        try:
            yield
        except self._errors.DeadlineExceeded:
            raise Unavailable(f"cannot {act} {self._subscription}: it took too long") from None
        except self._errors.GoogleAPIError as error:
            raise _to_lake_error(act, self._subscription, error, self._errors) from None


def _to_lake_error(act: str, subscription: str, error: Exception, errors: Any) -> LakeError:
    text = f"cannot {act} {subscription}: {error}"
    if isinstance(error, errors.NotFound | errors.InvalidArgument):
        return BadInput(text, hint="check intake.pubsub_subscription", where="intake.pubsub_subscription")
    if isinstance(error, errors.PermissionDenied | errors.Unauthenticated):
        return Denied(text, hint="give this process the role roles/pubsub.subscriber")
    return Unavailable(text, hint="check the network")
