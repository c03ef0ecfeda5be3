"""A queue of events in a folder: a file an event, gone when acknowledged. Whoever dies over one leaves it there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from lakerunner.intake.events import ObjectEvent, ParsedEvent
from lakerunner.intake.source import ReceivedEvent


class EventFolder:
    name = "event-folder"
    wait_s = 0.05
    trouble = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def send(self, bucket: str, key: str) -> None:
        name = uuid.uuid4().hex
        part = self._folder / f".{name}"
        part.write_text(f"{bucket}\n{key}")
        part.rename(self._folder / name)

    @property
    def is_empty(self) -> bool:
        return not self._waiting()

    def receive(self, max_events: int, timeout_s: float) -> list[ReceivedEvent]:
        names = self._waiting()
        if not names:
            time.sleep(timeout_s)
        return [self._read(name) for name in names[:max_events]]

    def ack(self, events: Sequence[ReceivedEvent]) -> None:
        for event in events:
            (self._folder / event.receipt).unlink(missing_ok=True)

    def nack(self, events: Sequence[ReceivedEvent]) -> None:
        """They never left."""

    def close(self) -> None:
        pass

    def _waiting(self) -> list[str]:
        # By random name: the copies of an event come between those of others.
        return sorted(path.name for path in self._folder.iterdir() if not path.name.startswith("."))

    def _read(self, name: str) -> ReceivedEvent:
        bucket, key = (self._folder / name).read_text().split("\n")
        return ReceivedEvent(name, ParsedEvent((ObjectEvent(bucket, key),)))
