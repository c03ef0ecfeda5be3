"""What a source of events is: something to receive from, and to acknowledge to after the ledger has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lakerunner.intake.events import ParsedEvent


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One message of a source, read. `receipt` is the source's own, to be handed back."""

    receipt: str
    event: ParsedEvent


class EventSource(Protocol):
    """Used by one thread. Every method raises a LakeError when the source does not answer."""

    @property
    def name(self) -> str:
        """For metrics, logs and health."""
        ...

    @property
    def wait_s(self) -> float:
        """How long one wait for events should take: the longer, the fewer requests; a stop waits as long."""
        ...

    def receive(self, max_events: int, timeout_s: float) -> list[ReceivedEvent]:
        """Up to that many, waiting up to that long for the first."""
        ...

    def ack(self, events: Sequence[ReceivedEvent]) -> None:
        """They are durable with us: never send them again. Losing an acknowledgement is harmless."""
        ...

    def nack(self, events: Sequence[ReceivedEvent]) -> None:
        """They are not: send them again, a little later."""
        ...

    def close(self) -> None: ...
