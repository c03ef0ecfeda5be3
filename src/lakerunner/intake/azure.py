"""Receive Event Grid events from an Azure storage queue."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lakerunner.intake.event_azure import parse_azure
from lakerunner.intake.optional_module import require_module
from lakerunner.intake.source import ReceivedEvent
from lakerunner.model.errors import BadInput, Denied, LakeError, Unavailable
from lakerunner.runtime.settings import Settings

#: A storage queue returns at most this many messages per request.
_MAX_PER_REQUEST = 32
#: A storage queue has no long polling: this is the wait between two polls of an empty queue.
_POLL_S = 1.0
_RETRY_AFTER_S = 10
_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
#: For an https:// address of the queue, the first of these variables that is set is the credential.
_CREDENTIALS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_KEY")
#: `SourceLoop` retries and logs it; the library's own retries would be a minute of silence.
_CLIENT_OPTIONS = {"retry_total": 0, "connection_timeout": 5, "read_timeout": 30}


class AzureQueueSource:
    name = "azure"
    wait_s = 1.0
    trouble = None

    def __init__(self, settings: Settings, sleep: Callable[[float], None] = time.sleep) -> None:
        queue = require_module("azure.storage.queue", "azure", "intake.azure_queue")
        self._errors = require_module("azure.core.exceptions", "azure", "intake.azure_queue")
        self._name = settings.intake.azure_queue
        self._visibility_s = settings.intake.visibility_s
        self._sleep = sleep
        try:
            self._client: Any = _client(queue.QueueClient, self._name)
        except ValueError as error:
            raise BadInput(f"cannot open the queue {self._name}: {error}", where="intake.azure_queue") from None

    def receive(self, max_events: int, timeout_s: float) -> list[ReceivedEvent]:
        end = time.monotonic() + timeout_s
        while not (received := self._receive(max_events)) and time.monotonic() < end:
            self._sleep(min(_POLL_S, timeout_s))
        return received

    def ack(self, events: Sequence[ReceivedEvent]) -> None:
        for event in events:
            try:
                with self._lake_errors("delete events from"):
                    self._client.delete_message(*json.loads(event.receipt))
            except _Gone:
                continue

    def nack(self, events: Sequence[ReceivedEvent]) -> None:
        for event in events:
            try:
                with self._lake_errors("return events to"):
                    self._client.update_message(*json.loads(event.receipt), visibility_timeout=_RETRY_AFTER_S)
            except _Gone:
                continue

    def close(self) -> None:
        self._client.close()

    def _receive(self, max_events: int) -> list[ReceivedEvent]:
        with self._lake_errors("receive events from"):
            messages = self._client.receive_messages(
                messages_per_page=min(max_events, _MAX_PER_REQUEST),
                max_messages=max_events,
                visibility_timeout=self._visibility_s,
            )
            return [
                ReceivedEvent(json.dumps([message.id, message.pop_receipt]), parse_azure(message.content))
                for message in messages
            ]

    @contextmanager
    def _lake_errors(self, act: str) -> Iterator[None]:
        try:
            yield
        except self._errors.AzureError as error:
            code = getattr(error, "error_code", None)
            if code in ("MessageNotFound", "PopReceiptMismatch"):
                # Its visibility timeout is over, and another consumer has or had it.
                raise _Gone from None
            raise _to_lake_error(act, self._name, error, code, self._errors) from None


class _Gone(Exception):
    """The message is no longer ours to answer."""


def _client(kind: Any, name: str) -> Any:
    if "://" not in name:
        if _CONNECTION not in os.environ:
            raise BadInput(
                f"cannot open the queue {name}: the variable {_CONNECTION} is not set",
                hint="set it, or set intake.azure_queue to the queue's https:// address",
                where="intake.azure_queue",
            )
        return kind.from_connection_string(os.environ[_CONNECTION], name, **_CLIENT_OPTIONS)
    credential: Any = next((os.environ[variable] for variable in _CREDENTIALS if variable in os.environ), None)
    if credential is None:
        credential = require_module("azure.identity", "azure", "intake.azure_queue").DefaultAzureCredential()
    return kind.from_queue_url(name, credential=credential, **_CLIENT_OPTIONS)


def _to_lake_error(act: str, name: str, error: Exception, code: Any, errors: Any) -> LakeError:
    first_line = (str(error).splitlines() or ["no reason given"])[0]
    text = f"cannot {act} the queue {name}: {first_line}"
    if code == "QueueNotFound":
        return BadInput(text, hint="create the queue, or correct intake.azure_queue", where="intake.azure_queue")
    if isinstance(error, errors.ClientAuthenticationError) or getattr(error, "status_code", None) == 403:
        return Denied(text, hint="give this process the role Storage Queue Data Message Processor")
    return Unavailable(text, hint="check intake.azure_queue and the network")
