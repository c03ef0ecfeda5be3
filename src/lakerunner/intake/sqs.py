"""S3's events from an SQS queue: long polling, and deletion only after the ledger has them."""

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

#: SQS hands out and takes back at most this many at once.
_AT_ONCE = 10
#: SQS' longest long poll.
_MAX_WAIT_S = 20
_RETRY_AFTER_S = 10
_NO_QUEUE = re.compile(r"NonExistentQueue|QueueDoesNotExist|InvalidAddress")
_NO_RIGHT = re.compile(r"AccessDenied|InvalidClientTokenId|SignatureDoesNotMatch|UnrecognizedClient|ExpiredToken")


class SqsSource:
    name = "sqs"
    wait_s = 5.0

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
        """Wait for the first, then take what else is there: one transaction for many is what makes it fast."""
        received = self._receive(min(max_events, _AT_ONCE), min(int(timeout_s), _MAX_WAIT_S))
        last = len(received)
        while last == _AT_ONCE and len(received) < max_events:
            more = self._receive(min(max_events - len(received), _AT_ONCE), 0)
            received += more
            last = len(more)
        return received

    def ack(self, events: Sequence[ReceivedEvent]) -> None:
        for entries in _entries(events):
            with self._lake_errors("delete from"):
                answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            # Comes again when its time is over, and is found in the ledger.
            SWALLOWED.labels("intake_sqs_delete").inc(len(answer.get("Failed", ())))

    def nack(self, events: Sequence[ReceivedEvent]) -> None:
        for entries in _entries(events):
            later = [{**entry, "VisibilityTimeout": _RETRY_AFTER_S} for entry in entries]
            with self._lake_errors("give back to"):
                self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=later)

    def close(self) -> None:
        self._client.close()

    def _receive(self, count: int, wait_s: int) -> list[ReceivedEvent]:
        with self._lake_errors("receive from"):
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
            raise _ours(act, self._url, error, self._errors) from None


def _entries(events: Sequence[ReceivedEvent]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(events), _AT_ONCE):
        part = events[start : start + _AT_ONCE]
        yield [{"Id": str(number), "ReceiptHandle": event.receipt} for number, event in enumerate(part)]


def _ours(act: str, url: str, error: Exception, errors: Any) -> LakeError:
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
            return Denied(text, hint="it needs sqs:ReceiveMessage, DeleteMessage and ChangeMessageVisibility")
    return Unavailable(text, hint="check intake.sqs_url, intake.sqs_endpoint and the network")
