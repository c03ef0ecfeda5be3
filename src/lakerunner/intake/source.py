"""The interface of a source of events: receive them, and acknowledge them once they are in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lakerunner.intake.events import ParsedEvent
from lakerunner.model.errors import LakeError


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One parsed message of a source. `receipt` identifies it in the answer to the source."""

    receipt: str
    event: ParsedEvent


class EventSource(Protocol):
    """Used by one thread. Every method raises a LakeError when the source does not answer."""

    @property
    def name(self) -> str:
        """The name in metrics, logs and health."""
        ...

    @property
    def trouble(self) -> LakeError | None:
        """Why a part of the source cannot be read, while the others are."""
        ...

    @property
    def wait_s(self) -> float:
        """How long one wait for events should take. A longer wait means fewer requests but a slower stop."""
        ...

    def receive(self, max_events: int, timeout_s: float) -> list[ReceivedEvent]:
        """Return up to `max_events`, waiting up to `timeout_s` for the first."""
        ...

    def ack(self, events: Sequence[ReceivedEvent]) -> None:
        """Acknowledge events, which are durable now. A lost acknowledgement is harmless."""
        ...

    def nack(self, events: Sequence[ReceivedEvent]) -> None:
        """Return events to the source, to be delivered again a little later."""
        ...

    def close(self) -> None: ...
