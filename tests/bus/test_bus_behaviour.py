"""The behaviour of every bus, tested on each one with a real server."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lakerunner.bus import dead_letters, topics
from lakerunner.bus.contract import Consumer, Delivery, Outgoing, answer, run_steps
from lakerunner.index import outbox
from lakerunner.index.database import Database
from lakerunner.model.errors import BadInput, Conflict, LakeError, Missing, Unavailable
from lakerunner.runtime.stop import Stop
from tests.bus.conftest import PARTITIONS, TOPIC, BusUnderTest, finish, nothing_comes, receive
from tests.components.process import RunningProcess

_SRC = Path(__file__).parents[2] / "src"


def keys_of_all_partitions() -> list[str]:
    """One key for every partition, in order."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        found.setdefault(topics.partition_of(f"key{number}", PARTITIONS), f"key{number}")
        number += 1
    return [found[partition] for partition in range(PARTITIONS)]


def start_worker(
    under_test: BusUnderTest, tmp_path: Path, mode: str, *, log: Path, env: dict[str, str] | None = None
) -> RunningProcess:
    return RunningProcess.start(
        [sys.executable, "-m", "tests.bus.worker", "g", TOPIC, mode, log],
        log_path=tmp_path / "worker.out",
        env={**under_test.env(), "PYTHONPATH": f"{_SRC}{os.pathsep}{_SRC.parent}", **(env or {})},
        cwd=_SRC.parent,
    )


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def total_lag(under_test: BusUnderTest, group: str = "g") -> int:
    return sum(lag.behind for lag in under_test.bus.lag(group))


def poll_each(consumers: list[Consumer], seconds: float) -> list[list[Delivery]]:
    """Poll the consumers in turn, as processes would, and return what each received."""
    got: list[list[Delivery]] = [[] for _ in consumers]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for number, consumer in enumerate(consumers):
            got[number] += consumer.poll(10, 0.02)
    return got


def spread(under_test: BusUnderTest, consumers: list[Consumer], wanted: list[int]) -> None:
    """Wait until the consumers hold these numbers of partitions, seen from the messages that each receives."""
    deadline = time.monotonic() + 20.0
    while True:
        under_test.bus.publish([Outgoing(TOPIC, key, b"probe") for key in keys_of_all_partitions()])
        got = poll_each(consumers, 1.0)
        for consumer, deliveries in zip(consumers, got, strict=True):
            for delivery in deliveries:
                consumer.done(delivery)
            consumer.commit()
        if sorted(len({delivery.partition for delivery in deliveries}) for deliveries in got) == sorted(wanted):
            return
        assert time.monotonic() < deadline, f"partitions by consumer: {[{d.partition for d in g} for g in got]}"


def test_a_published_message_is_consumed_once(under_test: BusUnderTest) -> None:
    under_test.publish("a", "b", "c")
    with under_test.consumer() as consumer:
        deliveries = receive(consumer, 3)
        assert [d.payload for d in deliveries] == [b"a", b"b", b"c"]
        assert {(d.topic, d.key, d.attempt) for d in deliveries} == {(TOPIC, "org", 1)}
        for delivery in deliveries:
            consumer.done(delivery)
        consumer.commit()
        assert nothing_comes(consumer)
    with under_test.consumer() as consumer:
        assert nothing_comes(consumer, 1.5)


def test_messages_of_a_key_stay_in_order_on_their_partition(under_test: BusUnderTest) -> None:
    keys = [f"org-{number}" for number in range(6)]
    for step in range(5):
        under_test.bus.publish([Outgoing(TOPIC, key, f"{key}:{step}".encode()) for key in keys])
    with under_test.consumer() as consumer:
        deliveries = receive(consumer, 30)
    for key in keys:
        mine = [d for d in deliveries if d.key == key]
        assert [d.payload.decode() for d in mine] == [f"{key}:{step}" for step in range(5)]
        assert {d.partition for d in mine} == {topics.partition_of(key, PARTITIONS)}


def test_a_message_published_while_polling_comes_at_once(under_test: BusUnderTest) -> None:
    with under_test.consumer() as consumer:
        under_test.publish("warm")
        assert finish(consumer, 1) == ["warm"]
        waits = []
        for number in range(5):
            under_test.publish(f"{number}")
            published_s = time.monotonic()
            assert finish(consumer, 1) == [f"{number}"]
            waits.append(time.monotonic() - published_s)
        assert sorted(waits)[2] < 0.2, waits


def test_consumers_share_the_partitions_and_a_third_gets_its_part_while_it_is_there(under_test: BusUnderTest) -> None:
    with under_test.consumer() as first:
        spread(under_test, [first], [4])
        with under_test.consumer() as second:
            spread(under_test, [first, second], [2, 2])
            with under_test.consumer() as third:
                spread(under_test, [first, second, third], [2, 1, 1])
            spread(under_test, [first, second], [2, 2])


def test_consumers_share_every_topic(under_test: BusUnderTest) -> None:
    """Not the logs to one and the traces to the other: where only logs come, one of them would do all the work."""
    names = [f"segments.{signal}.ingest" for signal in ("logs", "metrics", "traces")]
    probes = [Outgoing(name, key, b"probe") for name in names for key in keys_of_all_partitions()]
    with under_test.consumer("g", *names) as first:
        under_test.bus.publish(probes)
        assert len(finish(first, len(probes))) == len(probes)
        with under_test.consumer("g", *names) as second:
            deadline = time.monotonic() + 30.0
            while True:
                under_test.bus.publish(probes)
                got = poll_each([first, second], 1.5)
                for consumer, deliveries in zip((first, second), got, strict=True):
                    for delivery in deliveries:
                        consumer.done(delivery)
                    consumer.commit()
                held = [Counter(topic for topic, _ in {(d.topic, d.partition) for d in each}) for each in got]
                if held == [Counter(dict.fromkeys(names, PARTITIONS // 2))] * 2:
                    return
                assert time.monotonic() < deadline, held


def test_waiting_costs_next_to_nothing(make_bus: Callable[..., BusUnderTest]) -> None:
    under_test = make_bus(partitions=1, retry_base_s=60.0, retry_max_s=60.0)
    under_test.publish("fails", *("behind it" for _ in range(300)))
    with under_test.consumer() as consumer:
        (failing,) = receive(consumer, 1)
        consumer.fail(failing, Unavailable("cannot reach the bucket"))
        # Who comes second finds the only partition taken.
        with under_test.consumer() as without_partition:
            # On busy cores the second may come late, and the partition be given out again, with its first message.
            assert any(_cost_of_waiting_s([consumer, without_partition]) < 0.4 for _ in range(6))


def _cost_of_waiting_s(consumers: list[Consumer]) -> float:
    """The CPU time of waiting for a second with each consumer; infinite if a message came."""
    before_s = time.process_time()
    came = [(consumer, delivery) for consumer in consumers for delivery in consumer.poll(10, 1.0)]
    for consumer, delivery in came:
        consumer.fail(delivery, Unavailable("cannot reach the bucket"))
    return math.inf if came else time.process_time() - before_s


def test_groups_do_not_take_from_each_other(under_test: BusUnderTest) -> None:
    under_test.publish("a", "b")
    with under_test.consumer("one") as one, under_test.consumer("two") as two:
        assert finish(one, 2) == ["a", "b"]
        assert finish(two, 2) == ["a", "b"]


def test_what_was_not_answered_comes_again_without_an_attempt_held_against_it(under_test: BusUnderTest) -> None:
    under_test.publish("a", "b", "c")
    with under_test.consumer() as consumer:
        taken = receive(consumer, 3)
        consumer.done(taken[0])
    with under_test.consumer() as consumer:
        assert [(d.payload, d.attempt) for d in receive(consumer, 2)] == [(b"b", 1), (b"c", 1)]


def test_done_out_of_order_commits_only_the_prefix(under_test: BusUnderTest) -> None:
    under_test.publish("a", "b", "c", "d")
    with under_test.consumer() as consumer:
        a, b, c, d = receive(consumer, 4)
        consumer.done(d)
        consumer.done(b)
        consumer.commit()
        assert total_lag(under_test) == 4
        consumer.done(a)
        consumer.commit()
        assert total_lag(under_test) == 2
    with under_test.consumer() as consumer:
        # d was done but not committed: it comes again.
        assert [each.payload for each in receive(consumer, 2)] == [b"c", b"d"]
        assert c.offset == a.offset + 2


def test_a_consumer_killed_over_a_message_loses_nothing(under_test: BusUnderTest, tmp_path: Path) -> None:
    under_test.publish("a", "b")
    log = tmp_path / "held"
    worker = start_worker(under_test, tmp_path, "hold", log=log)
    try:
        wait_until(lambda: lines(log) == ["a"])
        with under_test.consumer() as consumer:
            receive(consumer, 1, timeout_s=0.5)
            worker.kill()
            assert finish(consumer, 2) == ["a", "b"]
    finally:
        worker.stop()


def test_a_consumer_whose_host_vanished_loses_its_partitions(under_test: BusUnderTest) -> None:
    under_test.publish("a", "b")
    with under_test.behind_proxy() as (proxy, remote), remote.consumer() as vanished:
        (held,) = receive(vanished, 1)
        proxy.silence()
        try:
            with under_test.consumer() as consumer:
                assert finish(consumer, 2) == ["a", "b"]
        finally:
            proxy.resume()
        # It comes back, learns that the partition was not its own any more, and takes part again.
        vanished.done(held)
        with suppress(Conflict, Unavailable):
            vanished.commit()
        under_test.publish("c")
        assert finish(vanished, 1) == ["c"]


def test_a_consumer_that_works_for_long_keeps_its_partitions(make_bus: Callable[..., BusUnderTest]) -> None:
    under_test = make_bus(session_timeout_s=1.0)
    under_test.publish("a", "b")
    with under_test.consumer() as consumer:
        (a,) = receive(consumer, 1)
        # Longer than the session timeout, without a call to the consumer.
        time.sleep(1.5)
        consumer.done(a)
        consumer.commit()
        assert total_lag(under_test) == 1


def test_a_failed_message_is_tried_again_before_what_follows_it(under_test: BusUnderTest) -> None:
    under_test.publish("a", "b")
    with under_test.consumer() as consumer:
        (a,) = receive(consumer, 1)
        consumer.fail(a, Unavailable("cannot reach the bucket"))
        again = receive(consumer, 1)
        assert [(d.payload, d.attempt) for d in again] == [(b"a", 2)]
        assert nothing_comes(consumer, 0.3)
        consumer.done(again[0])
        assert finish(consumer, 1) == ["b"]


@pytest.mark.parametrize(
    ("error", "attempts"), [(BadInput("cannot read it: rubbish"), 1), (Unavailable("cannot reach it"), 3)]
)
def test_a_poison_message_goes_to_the_dead_letters_and_its_neighbours_pass(
    under_test: BusUnderTest, error: LakeError, attempts: int
) -> None:
    under_test.publish("a", "poison", "b")
    handled: list[str] = []
    stop = Stop()

    with under_test.consumer() as consumer:

        def step() -> None:
            for delivery in consumer.poll(64, 0.1):
                poison = delivery.payload == b"poison"
                answer(consumer, delivery, error if poison else None)
                if not poison:
                    handled.append(delivery.payload.decode())
            consumer.commit()
            if handled and total_lag(under_test) == 0:
                stop.request()

        run_steps(step, stop, "test")
    assert handled == ["a", "b"]
    (dead,) = dead_letters.dead_letters(under_test.bus)
    letter = dead.letter
    assert (letter.topic, letter.key, letter.group, letter.payload) == (TOPIC, "org", "g", b"poison")
    assert (letter.attempts, letter.code, letter.reason) == (attempts, error.code, str(error))
    assert (letter.partition, letter.offset) == (topics.partition_of("org", PARTITIONS), 1)
    assert total_lag(under_test) == 0


def test_a_message_that_kills_its_workers_ends_in_the_dead_letters(
    make_bus: Callable[..., BusUnderTest], tmp_path: Path
) -> None:
    under_test = make_bus(max_attempts=2, session_timeout_s=1.0)
    under_test.publish("a", "kill me", "b")
    log = tmp_path / "handled"
    deaths = 0
    worker = start_worker(under_test, tmp_path, "deadly", log=log)
    try:
        while "b" not in lines(log):
            if worker.returncode is not None:
                deaths += 1
                assert deaths <= 5, lines(log)
                worker = start_worker(under_test, tmp_path, "deadly", log=log)
            time.sleep(0.05)
    finally:
        worker.stop()
    (dead,) = dead_letters.dead_letters(under_test.bus, TOPIC)
    assert (dead.letter.payload, dead.letter.code) == (b"kill me", "worker_died")
    # Over three messages at once, twice; then, going one by one, twice more for certain.
    assert lines(log).count("dies over kill me") == deaths == 4


def test_a_dead_letter_is_redriven_to_where_it_failed(under_test: BusUnderTest) -> None:
    under_test.publish("x", "y", "z")
    with under_test.consumer() as consumer:
        for delivery in receive(consumer, 3):
            consumer.fail(delivery, BadInput(f"cannot read {delivery.payload.decode()}"))
        consumer.commit()
        letters = dead_letters.dead_letters(under_test.bus, TOPIC)
        assert [each.letter.payload for each in letters] == [b"x", b"y", b"z"]
        redriven = dead_letters.redrive(under_test.bus, [letters[1].letter_id])
        assert redriven == [letters[1]]
        assert finish(consumer, 1) == ["y"]
        assert dead_letters.dead_letters(under_test.bus) == [letters[0], letters[2]]
        with pytest.raises(Missing):
            dead_letters.redrive(under_test.bus, [letters[1].letter_id])
        dead_letters.redrive_all(under_test.bus, TOPIC)
        assert finish(consumer, 2) == ["x", "z"]
        assert dead_letters.dead_letters(under_test.bus) == []
        assert under_test.bus.read(topics.dead(TOPIC).name) == []


def test_lag_and_tail_tell_what_is_there(under_test: BusUnderTest) -> None:
    under_test.publish("a", "b", "c")
    with under_test.consumer() as consumer:
        assert finish(consumer, 2) == ["a", "b"]
    partition = topics.partition_of("org", PARTITIONS)
    by_partition = {lag.partition: lag for lag in under_test.bus.lag() if lag.group == "g"}
    assert (by_partition[partition].committed, by_partition[partition].behind) == (2, 1)
    assert by_partition[partition].topic == TOPIC
    tail = under_test.bus.tail(TOPIC, 2)
    assert [(record.payload, record.offset, record.key) for record in tail] == [(b"b", 1, "org"), (b"c", 2, "org")]
    with pytest.raises(Missing):
        under_test.bus.tail("no.such.topic", 1)


def test_publishing_to_a_topic_that_is_not_there_is_refused(under_test: BusUnderTest) -> None:
    with pytest.raises(Missing):
        under_test.publish("a", topic="no.such.topic")
    assert under_test.bus.ensure_topics() == []


@pytest.mark.parametrize("outage", ["stop", "crash"])
def test_a_server_that_goes_and_comes_back_loses_nothing(under_test: BusUnderTest, outage: str) -> None:
    before = [f"before {number}" for number in range(50)]
    under_test.publish(*before)
    with under_test.consumer() as consumer:
        got = finish(consumer, 20)
        held = receive(consumer, 5)
        getattr(under_test.server, outage)()
        try:
            with pytest.raises(Unavailable):
                under_test.bus.ping()
        finally:
            under_test.server.start()
        after = [f"after {number}" for number in range(20)]
        deadline = time.monotonic() + 30
        while True:
            try:
                under_test.publish(*after)
                break
            except Unavailable:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        for delivery in held:
            # Whether this counts depends on whether the consumer kept its partition; either way it may come again.
            consumer.done(delivery)
        answered = {delivery.payload.decode() for delivery in held}
        while set(got) | answered != {*before, *after}:
            assert time.monotonic() < deadline + 20, sorted({*before, *after} - set(got) - answered)
            got += finish(consumer, 1, timeout_s=1.0)
        wait_until(lambda: finish(consumer, 100, timeout_s=0.5) == [] and total_lag(under_test) == 0)


def test_a_relay_killed_between_publish_and_mark_loses_nothing(
    under_test: BusUnderTest, database: Database, tmp_path: Path
) -> None:
    with database.transaction() as tx:
        outbox.put(tx, [Outgoing(TOPIC, "org", f"m{number}".encode()) for number in range(15)])
    log = tmp_path / "relay"
    relay = start_worker(
        under_test, tmp_path, "relay", log=log, env={"LAKERUNNER_CRASH_POINT": "relay_after_publish:2"}
    )
    wait_until(lambda: relay.returncode is not None)
    assert relay.returncode == -9
    assert len(outbox.pending(database, 100)) == 5
    with start_worker(under_test, tmp_path, "relay", log=log) as again:
        wait_until(lambda: again.returncode is not None)
    assert outbox.pending(database, 100) == []
    with under_test.consumer() as consumer:
        # The five of the second batch were published, not marked, and published again.
        assert finish(consumer, 20) == [f"m{number}" for number in (*range(15), *range(10, 15))]
