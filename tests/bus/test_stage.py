"""The loop of a stage, over a scripted consumer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakerunner.bus.contract import Delivery
from lakerunner.bus.stage import run_batches, run_stage
from lakerunner.model.errors import BadInput, Conflict, LakeError, Unavailable
from lakerunner.runtime.metrics import BUS_HANDLED
from lakerunner.runtime.stop import Stop


def delivery(offset: int) -> Delivery:
    return Delivery("segments.logs.ingest", 0, offset, "key", b"%d" % offset, 1)


class Script:
    """A consumer whose polls follow a script; when it is over, the stage is asked to stop."""

    group = "scripted"

    def __init__(self, stop: Stop, *polls: list[Delivery] | LakeError, commit_errors: Sequence[LakeError] = ()) -> None:
        self._stop = stop
        self._polls = list(polls)
        self._commit_errors = list(commit_errors)
        self.answers: list[tuple[int, str]] = []
        self.commits = 0

    def poll(self, max_messages: int, timeout_s: float) -> list[Delivery]:
        if not self._polls:
            self._stop.request()
            return []
        step = self._polls.pop(0)
        if isinstance(step, LakeError):
            raise step
        return step

    def done(self, delivery: Delivery) -> None:
        self.answers.append((delivery.offset, "done"))

    def fail(self, delivery: Delivery, error: LakeError) -> None:
        self.answers.append((delivery.offset, error.code))

    def commit(self) -> None:
        if self._commit_errors:
            raise self._commit_errors.pop(0)
        self.commits += 1

    def close(self) -> None:
        raise AssertionError("the stage does not own its consumer")


def handle(delivery: Delivery) -> None:
    if delivery.offset == 1:
        raise BadInput("cannot read it")
    if delivery.offset == 2:
        raise KeyError("surprise")


def test_every_delivery_is_answered_by_what_became_of_it() -> None:
    stop = Stop()
    script = Script(stop, [delivery(0), delivery(1), delivery(2)])
    counter = BUS_HANDLED.labels("segments.logs.ingest", "scripted", "bad_input")
    before = counter._value.get()
    run_stage(script, handle, stop)
    assert script.answers == [(0, "done"), (1, "bad_input"), (2, "bug")]
    assert script.commits == 2
    assert counter._value.get() == before + 1


def test_a_refused_batch_is_tried_one_by_one() -> None:
    stop = Stop()
    script = Script(stop, [delivery(0), delivery(1), delivery(3)])
    sizes: list[int] = []

    def handle_batch(deliveries: Sequence[Delivery]) -> None:
        sizes.append(len(deliveries))
        for each in deliveries:
            handle(each)

    run_batches(script, handle_batch, stop)
    assert script.answers == [(0, "done"), (1, "bad_input"), (3, "done")]
    assert sizes == [3, 1, 1, 1]


def test_a_batch_that_may_pass_later_fails_whole() -> None:
    stop = Stop()
    script = Script(stop, [delivery(0), delivery(1)])

    def handle_batch(deliveries: Sequence[Delivery]) -> None:
        raise Unavailable("cannot reach the bucket")

    run_batches(script, handle_batch, stop)
    assert script.answers == [(0, "unavailable"), (1, "unavailable")]


def test_a_bus_that_is_down_is_told_and_waited_for() -> None:
    stop = Stop()
    script = Script(stop, Unavailable("cannot reach it"), [delivery(0)])
    health: list[str | None] = []
    run_stage(script, handle, stop, on_health=lambda error: health.append(error and error.code))
    assert health == ["unavailable", None, None]
    assert script.answers == [(0, "done")]


def test_a_lost_partition_does_not_end_the_stage() -> None:
    stop = Stop()
    script = Script(stop, [delivery(0)], [delivery(3)], commit_errors=[Conflict("cannot commit: taken over")])
    run_stage(script, handle, stop)
    assert script.answers == [(0, "done"), (3, "done")]


def test_what_retrying_cannot_mend_ends_the_stage() -> None:
    stop = Stop()
    with pytest.raises(BadInput):
        run_stage(Script(stop, BadInput("cannot log in")), handle, stop)


def test_asked_to_stop_it_leaves_the_rest_unanswered() -> None:
    stop = Stop()
    script = Script(stop, [delivery(0), delivery(3)])
    run_stage(script, lambda _: stop.request(), stop)
    assert script.answers == [(0, "done")]
    assert script.commits == 1
