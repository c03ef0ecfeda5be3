"""The loop of a stage: poll, handle, answer, commit. Only the class of an error decides what happens to its message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import structlog

from lakerunner.bus.contract import Consumer, Delivery
from lakerunner.model.errors import Bug, Conflict, LakeError
from lakerunner.runtime.metrics import BUS_HANDLED, SWALLOWED
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.stop import Stop

Handle = Callable[[Delivery], None]
HandleBatch = Callable[[Sequence[Delivery]], None]
#: Called with None when the bus answers, and with the error while it does not.
OnHealth = Callable[[LakeError | None], None]

#: A long batch is committed at this interval, so that little is repeated after a death.
_COMMIT_EVERY_S = 1.0
_BUS_DOWN = Backoff(base_s=0.2, cap_s=5.0)

log = structlog.get_logger("lakerunner.bus")


def run_stage(
    consumer: Consumer,
    handle: Handle,
    stop: Stop,
    *,
    max_messages: int = 64,
    poll_s: float = 0.5,
    on_health: OnHealth = lambda _: None,
) -> None:
    """Handle messages one by one until asked to stop. The caller closes the consumer."""

    def handle_all(deliveries: Sequence[Delivery]) -> None:
        committed_at_s = monotonic()
        for delivery in deliveries:
            if stop:
                # Not answered: handed back when the consumer closes.
                return
            _answer(consumer, delivery, _outcome(lambda: handle(delivery)))  # noqa: B023 called at once
            if monotonic() - committed_at_s > _COMMIT_EVERY_S:
                consumer.commit()
                committed_at_s = monotonic()

    _run(consumer, handle_all, stop, max_messages, poll_s, on_health)


def run_batches(
    consumer: Consumer,
    handle: HandleBatch,
    stop: Stop,
    *,
    max_messages: int = 64,
    poll_s: float = 0.5,
    on_health: OnHealth = lambda _: None,
) -> None:
    """Handle messages in batches. A refused batch is retried one by one, so that only the culprit fails."""

    def handle_all(deliveries: Sequence[Delivery]) -> None:
        error = _outcome(lambda: handle(deliveries))
        one_by_one = error is not None and not error.retryable and len(deliveries) > 1
        for delivery in deliveries:
            if stop and one_by_one:
                return
            _answer(consumer, delivery, _outcome(lambda: handle([delivery])) if one_by_one else error)  # noqa: B023

    _run(consumer, handle_all, stop, max_messages, poll_s, on_health)


def _run(
    consumer: Consumer,
    handle_all: HandleBatch,
    stop: Stop,
    max_messages: int,
    poll_s: float,
    on_health: OnHealth,
) -> None:
    failures = 0
    while not stop:
        try:
            deliveries = consumer.poll(max_messages, poll_s)
            if deliveries:
                handle_all(deliveries)
            consumer.commit()
        except Conflict as error:
            # The partition's messages went to another member, which handles them again.
            SWALLOWED.labels("bus_partition_lost").inc()
            log.info("partition lost", group=consumer.group, reason=str(error))
        except LakeError as error:
            if not error.retryable:
                raise
            failures += 1
            on_health(error)
            stop.wait(_BUS_DOWN.delay_s(failures))
        else:
            failures = 0
            on_health(None)


def _outcome(call: Callable[[], None]) -> LakeError | None:
    try:
        call()
    except LakeError as error:
        return error
    except Exception as error:
        # One message must not end the stage; its dead letter has the reason.
        log.exception("handler failed")
        return Bug(f"cannot handle a message: {type(error).__name__}: {error}")
    return None


def _answer(consumer: Consumer, delivery: Delivery, error: LakeError | None) -> None:
    if error is None:
        consumer.done(delivery)
    else:
        consumer.fail(delivery, error)
    outcome = "done" if error is None else error.code
    BUS_HANDLED.labels(delivery.topic, consumer.group, outcome).inc()
