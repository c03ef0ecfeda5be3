"""The loop around a consumer, over steps that do as the test says."""

from __future__ import annotations

import pytest

from lakerunner.bus.contract import Delivery, answer, run_steps
from lakerunner.model.errors import BadInput, Conflict, LakeError, Unavailable
from lakerunner.runtime.metrics import BUS_HANDLED, SWALLOWED
from lakerunner.runtime.stop import Stop


class Script:
    """Steps that raise what the script says; when it is over, the loop is asked to stop."""

    def __init__(self, *steps: LakeError | None) -> None:
        self.stop = Stop()
        self._steps = list(steps)
        self.done = 0

    def __call__(self) -> None:
        error = self._steps.pop(0)
        if not self._steps:
            self.stop.request()
        if error is not None:
            raise error
        self.done += 1


class Answers:
    """A consumer that notes its answers."""

    group = "scripted"

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = []

    def done(self, delivery: Delivery) -> None:
        self.answers.append((delivery.offset, "done"))

    def fail(self, delivery: Delivery, error: LakeError) -> None:
        self.answers.append((delivery.offset, error.code))


def test_a_bus_that_is_down_is_waited_for() -> None:
    script = Script(Unavailable("cannot reach it"), None, None)
    run_steps(script, script.stop, "scripted")
    assert script.done == 2


def test_a_lost_partition_does_not_end_the_loop_and_is_counted() -> None:
    counter = SWALLOWED.labels("bus_partition_lost")
    before = counter._value.get()
    script = Script(None, Conflict("cannot commit: taken over"), None)
    run_steps(script, script.stop, "scripted")
    assert script.done == 2
    assert counter._value.get() == before + 1


def test_what_retrying_cannot_mend_ends_the_loop() -> None:
    script = Script(None, BadInput("cannot log in"), None)
    with pytest.raises(BadInput):
        run_steps(script, script.stop, "scripted")
    assert script.done == 1


def test_asked_to_stop_it_takes_no_further_step() -> None:
    script = Script(None, None)
    script.stop.request()
    run_steps(script, script.stop, "scripted")
    assert script.done == 0


def test_a_delivery_is_answered_by_the_error_and_counted() -> None:
    consumer = Answers()
    counter = BUS_HANDLED.labels("segments.logs.ingest", "scripted", "bad_input")
    before = counter._value.get()
    for offset, error in enumerate([None, BadInput("cannot read it")]):
        delivery = Delivery("segments.logs.ingest", 0, offset, "key", b"", 1)
        answer(consumer, delivery, error)  # type: ignore[arg-type]
    assert consumer.answers == [(0, "done"), (1, "bad_input")]
    assert counter._value.get() == before + 1
