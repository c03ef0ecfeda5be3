"""Receive S3's events from an SQS queue by long polling; delete them only after they are in the ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lakerunner.intake.event_s3 import parse_s3
from lakerunner.intake.optional_module import require_module
from lakerunner.intake.source import ReceivedEvent
from lakerunner.model.errors import BadInput, Denied, LakeError, Unavailable
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.settings import Settings

#: SQS accepts at most this many messages per request.
_MAX_PER_REQUEST = 10
#: The longest long poll of SQS.
_MAX_WAIT_S = 20
_RETRY_AFTER_S = 10
_NO_QUEUE = re.compile(r"NonExistentQueue|QueueDoesNotExist|InvalidAddress")
_NO_RIGHT = re.compile(r"AccessDenied|InvalidClientTokenId|SignatureDoesNotMatch|UnrecognizedClient|ExpiredToken")


class SqsSource:
    name = "sqs"
    wait_s = 5.0
    trouble = None

    def __init__(self, settings: Settings) -> None:
        boto3 = require_module("boto3", "aws", "intake.sqs_url")
        config = require_module("botocore.config", "aws", "intake.sqs_url")
        self._errors = require_module("botocore.exceptions", "aws", "intake.sqs_url")
        intake = settings.intake
        self._url = intake.sqs_url
        self._visibility_s = intake.visibility_s
        with self._lake_errors("open"):
            self._client: Any = boto3.client(
                "sqs",
                region_name=intake.sqs_region or settings.store.region or None,
                endpoint_url=intake.sqs_endpoint or None,
                config=config.Config(connect_timeout=5, read_timeout=_MAX_WAIT_S + 10, retries={"max_attempts": 2}),
            )

    def receive(self, max_events: int, timeout_s: float) -> list[ReceivedEvent]:
        """Wait for the first events, then take all that are ready: one transaction for many events is fast."""
        received = self._receive(min(max_events, _MAX_PER_REQUEST), min(int(timeout_s), _MAX_WAIT_S))
        last = len(received)
        while last == _MAX_PER_REQUEST and len(received) < max_events:
            more = self._receive(min(max_events - len(received), _MAX_PER_REQUEST), 0)
            received += more
            last = len(more)
        return received

    def ack(self, events: Sequence[ReceivedEvent]) -> None:
        for entries in _entries(events):
            with self._lake_errors("delete events from"):
                answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            # An undeleted event is delivered again after its visibility timeout, and found in the ledger.
            SWALLOWED.labels("intake_sqs_delete").inc(len(answer.get("Failed", ())))

    def nack(self, events: Sequence[ReceivedEvent]) -> None:
        for entries in _entries(events):
            later = [{**entry, "VisibilityTimeout": _RETRY_AFTER_S} for entry in entries]
            with self._lake_errors("return events to"):
                self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=later)

    def close(self) -> None:
        self._client.close()

    def _receive(self, count: int, wait_s: int) -> list[ReceivedEvent]:
        with self._lake_errors("receive events from"):
            answer = self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=count,
                WaitTimeSeconds=wait_s,
                VisibilityTimeout=self._visibility_s,
            )
        return [
            ReceivedEvent(message["ReceiptHandle"], parse_s3(message["Body"])) for message in answer.get("Messages", ())
        ]

    @contextmanager
    def _lake_errors(self, act: str) -> Iterator[None]:
        try:
            yield
        except (self._errors.ClientError, self._errors.BotoCoreError) as error:
            raise _to_lake_error(act, self._url, error, self._errors) from None


def _entries(events: Sequence[ReceivedEvent]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(events), _MAX_PER_REQUEST):
        part = events[start : start + _MAX_PER_REQUEST]
        yield [{"Id": str(number), "ReceiptHandle": event.receipt} for number, event in enumerate(part)]


def _to_lake_error(act: str, url: str, error: Exception, errors: Any) -> LakeError:
    text = f"cannot {act} the queue {url}: {error}"
    if isinstance(error, errors.NoRegionError):
        return BadInput(text, hint="set intake.sqs_region", where="intake.sqs_region")
    if isinstance(error, errors.NoCredentialsError | errors.PartialCredentialsError):
        return Denied(text, hint="give this process AWS credentials")
    if isinstance(error, errors.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        if _NO_QUEUE.search(code):
            return BadInput(text, hint="check intake.sqs_url", where="intake.sqs_url")
        if _NO_RIGHT.search(code):
            return Denied(text, hint="allow sqs:ReceiveMessage, sqs:DeleteMessage and sqs:ChangeMessageVisibility")
    return Unavailable(text, hint="check intake.sqs_url, intake.sqs_endpoint and the network")
