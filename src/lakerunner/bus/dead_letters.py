"""List dead letters, and redrive them: send their messages back to the topics where they failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakerunner.bus import topics
from lakerunner.bus.contract import Bus, Outgoing, Record
from lakerunner.bus.messages import DeadLetter, Redriven, decode, encode
from lakerunner.model.errors import BadInput, Missing
from lakerunner.runtime.crash import crash_point


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A stored dead letter. `redrive` takes its `letter_id`."""

    letter_id: str
    letter: DeadLetter
    record: Record

    @property
    def died_at(self) -> datetime | None:
        return self.record.created_at


def dead_letters(bus: Bus, topic: str | None = None) -> list[DeadLetterRecord]:
    """Return the dead letters that were not redriven, of one live topic or of all, oldest first."""
    names = [topics.topic_named(topic).name] if topic is not None else [each.name for each in topics.LIVE_TOPICS]
    return [dead for name in names for dead in _still_dead(bus.read(topics.dead(name).name))]


def redrive(bus: Bus, letter_ids: Sequence[str]) -> list[DeadLetterRecord]:
    """Send these messages back to their topics. If killed half-way, some may be sent twice: redelivery is normal."""
    by_topic: dict[str, set[int]] = {}
    for letter_id in letter_ids:
        name, offset = _parse(letter_id)
        by_topic.setdefault(name, set()).add(offset)
    chosen: list[DeadLetterRecord] = []
    for name, offsets in by_topic.items():
        found = {dead.record.offset: dead for dead in dead_letters(bus, name)}
        for offset in sorted(offsets - found.keys()):
            raise Missing(
                f"cannot find the dead letter {_letter_id(name, offset)}", hint="it may have been redriven already"
            )
        chosen += [found[offset] for offset in sorted(offsets)]
    _send_back(bus, chosen)
    return chosen


def redrive_all(bus: Bus, topic: str | None = None) -> list[DeadLetterRecord]:
    """Redrive every dead letter, of one topic or of all."""
    chosen = dead_letters(bus, topic)
    _send_back(bus, chosen)
    return chosen


def _send_back(bus: Bus, chosen: Sequence[DeadLetterRecord]) -> None:
    if not chosen:
        return
    bus.publish([Outgoing(each.letter.topic, each.letter.key, each.letter.payload) for each in chosen])
    crash_point("redrive_after_publish")
    bus.publish([Outgoing(each.record.topic, each.record.key, encode(Redriven(each.record.offset))) for each in chosen])
    for name in {each.record.topic for each in chosen}:
        _forget_prefix(bus, name)


def _forget_prefix(bus: Bus, dead_topic: str) -> None:
    """Delete everything before the first letter that is still dead: redriven letters and their `Redriven` notes."""
    records = bus.read(dead_topic)
    remaining = _still_dead(records)
    end = remaining[0].record.offset if remaining else max((record.offset + 1 for record in records), default=0)
    bus.trim(dead_topic, 0, end)


def _still_dead(records: Iterable[Record]) -> list[DeadLetterRecord]:
    """Return the letters without a `Redriven` note. A dead-letter topic has one partition with letters and notes."""
    letters: dict[int, DeadLetterRecord] = {}
    for record in records:
        try:
            letters.pop(decode(Redriven, record.payload).redriven_offset, None)
        except BadInput:
            letter = decode(DeadLetter, record.payload)
            letters[record.offset] = DeadLetterRecord(_letter_id(letter.topic, record.offset), letter, record)
    return list(letters.values())


def _letter_id(topic: str, offset: int) -> str:
    return f"{topic}/{offset}"


def _parse(letter_id: str) -> tuple[str, int]:
    name, _, offset = letter_id.rpartition("/")
    if not offset.isdecimal():
        raise BadInput(
            f"cannot read {letter_id!r}: it is not the id of a dead letter",
            hint="an id looks like segments.logs.ingest/12",
        )
    return topics.topic_named(name).name, int(offset)
