"""The loop between a source and the ledger: acknowledging, returning events, waiting, and reporting health."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lakerunner.intake.events import ObjectEvent, ParsedEvent
from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.record import Recorded, Recorder
from lakerunner.intake.source import ReceivedEvent
from lakerunner.model.errors import Bug, LakeError, Unavailable
from lakerunner.runtime.stop import Stop
from lakerunner.store.errors import StoreUnavailable
from tests.intake.conftest import Lake, write


class ListSource:
    """Hands out a list, once; then asks to stop."""

    name = "list"
    wait_s = 0.0
    trouble: LakeError | None = None

    def __init__(self, stop: Stop, *events: ParsedEvent, error: Exception | None = None) -> None:
        self.left = [ReceivedEvent(str(number), event) for number, event in enumerate(events)]
        self.acked: list[str] = []
        self.nacked: list[str] = []
        self._stop = stop
        self._error = error

    def receive(self, max_events: int, timeout_s: float) -> list[ReceivedEvent]:
        received, self.left = self.left[:max_events], self.left[max_events:]
        if not received:
            self._stop.request()
            if self._error is not None:
                raise self._error
        return received

    def ack(self, events: Sequence[ReceivedEvent]) -> None:
        self.acked += [event.receipt for event in events]

    def nack(self, events: Sequence[ReceivedEvent]) -> None:
        self.nacked += [event.receipt for event in events]

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stop, "wait", lambda self, _: bool(self))


def named(lake: Lake, key: str) -> ParsedEvent:
    return ParsedEvent((ObjectEvent(lake.bucket, key),))


def test_in_batches_all_acknowledged(lake: Lake, recorder: Recorder) -> None:
    keys = [f"otel-raw/logs_{number}.json" for number in range(7)]
    for key in keys:
        write(Path(lake.bucket.removeprefix("file://")), key)
    stop = Stop()
    source = ListSource(stop, *(named(lake, key) for key in keys))
    SourceLoop(source, recorder, 3).run(stop)
    assert (source.acked, source.nacked) == ([str(number) for number in range(7)], [])
    lake.assert_each_once(keys)


def test_what_its_bucket_holds_back_is_given_back_and_told(lake: Lake, recorder: Recorder) -> None:
    write(Path(lake.bucket.removeprefix("file://")), "otel-raw/logs_1.json")
    lake.add_profile("otel-raw/", bucket="s3://secret", credentials_ref="LAKERUNNER_TEST_NOT_SET")
    stop = Stop()
    away = ParsedEvent((ObjectEvent("s3://secret", "otel-raw/logs_9.json"),))
    source = ListSource(stop, away, named(lake, "otel-raw/logs_1.json"))
    loop = SourceLoop(source, recorder, 10)
    assert loop._handle(source.receive(10, 0), stop) is False
    assert (source.acked, source.nacked) == (["1"], ["0"])
    with pytest.raises(Unavailable, match="LAKERUNNER_TEST_NOT_SET"):
        loop.probe()


class PoisonedRecorder:
    """Fails over any batch that holds the poison."""

    def __init__(self, error: LakeError) -> None:
        self._error = error
        self.tries = 0

    def record_events(self, messages: Sequence[ParsedEvent], source: str) -> Recorded:
        self.tries += 1
        if any(event.key == "poison" for message in messages for event in message.objects):
            raise self._error
        return Recorded()


def test_only_the_culprit_of_a_refused_batch_waits() -> None:
    stop = Stop()
    events = [ParsedEvent((ObjectEvent("s3://b", key),)) for key in ("a", "poison", "b")]
    source = ListSource(stop, *events)
    SourceLoop(source, PoisonedRecorder(Bug("cannot")), 10).run(stop)  # type: ignore[arg-type]
    assert (source.acked, source.nacked) == (["0", "2"], ["1"])


def test_an_index_that_is_down_is_waited_for_with_the_same_events() -> None:
    stop = Stop()
    source = ListSource(stop, ParsedEvent((ObjectEvent("s3://b", "poison"),)))
    recorder = PoisonedRecorder(Unavailable("cannot reach the index"))
    received = source.receive(10, 0)
    waits: list[float] = []

    class StopAfterTwenty(Stop):
        def wait(self, timeout_s: float) -> bool:
            waits.append(timeout_s)
            if len(waits) == 20:
                self.request()
            return bool(self)

    assert SourceLoop(source, recorder, 10)._handle(received, StopAfterTwenty()) is False  # type: ignore[arg-type]
    assert (recorder.tries, source.acked, source.nacked) == (20, [], ["0"])
    assert max(waits) <= 5.0


class BlockedRecorder:
    """The lake's own bucket refuses all for some rounds."""

    def __init__(self, rounds: int) -> None:
        self._left = rounds

    def record_events(self, messages: Sequence[ParsedEvent], source: str) -> Recorded:
        self._left -= 1
        if self._left < 0:
            return Recorded()
        trouble = StoreUnavailable("cannot head 'a': Access Denied", where="s3://b")
        return Recorded(later=dict.fromkeys(range(len(messages)), trouble), is_blocked=True)


def test_a_lake_whose_own_bucket_refuses_is_waited_for_with_the_same_events() -> None:
    stop = Stop()
    source = ListSource(stop, *(ParsedEvent((ObjectEvent("s3://b", key),)) for key in ("a", "b")))
    loop = SourceLoop(source, BlockedRecorder(20), 10)  # type: ignore[arg-type]
    assert loop._handle(source.receive(10, 0), stop)
    assert (source.acked, source.nacked) == (["0", "1"], [])
    with pytest.raises(Unavailable, match="Access Denied"):
        loop.probe()


@pytest.mark.parametrize("error", [Unavailable("cannot reach it"), Bug("cannot"), OSError(5, "Input/output error")])
def test_a_source_in_trouble_is_told_and_does_not_end_the_loop(
    lake: Lake, make_recorder: Callable[[Lake], Recorder], error: Exception
) -> None:
    stop = Stop()
    loop = SourceLoop(ListSource(stop, error=error), make_recorder(lake), 10)
    loop.probe()
    loop.run(stop)
    with pytest.raises(Unavailable, match="cannot"):
        loop.probe()
