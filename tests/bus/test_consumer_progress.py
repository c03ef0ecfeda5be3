"""The bookkeeping of a consumer, against random orders of everything that can happen."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lakerunner.bus.consumer_progress import ConsumerProgress
from lakerunner.bus.contract import Delivery, Record
from lakerunner.bus.partition_progress import Checkpoint, PartitionProgress, RetryPolicy
from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.runtime.retry import Backoff

MAX_ATTEMPTS = 3
POLICY = RetryPolicy(MAX_ATTEMPTS, Backoff(base_s=1.0, cap_s=4.0))
TOPIC = "segments.logs.ingest"
PARTITION_ID = (TOPIC, 0)


def record(offset: int, partition: int = 0) -> Record:
    return Record(TOPIC, partition, offset, key_of(offset), b"%d" % offset)


def key_of(offset: int) -> str:
    """Two keys of many share a partition."""
    return "even" if offset % 2 == 0 else "odd"


def opened(
    found: Checkpoint | None = None, *, count: int = 3, member: str = "me", partitions: int = 1
) -> ConsumerProgress:
    progress = ConsumerProgress(member, POLICY)
    for partition in range(partitions):
        progress.open((TOPIC, partition), found or Checkpoint())
        progress.fetched((TOPIC, partition), [record(offset, partition) for offset in range(count)])
    return progress


def offsets(deliveries: list[Delivery]) -> list[int]:
    return [delivery.offset for delivery in deliveries]


class OnePartition(RuleBasedStateMachine):
    """A model to compare with: every offset is unresolved until it is done or dead-lettered."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.end = 0
        self.out: dict[int, Delivery] = {}
        self.resolved: set[int] = set()
        self.failures: dict[int, int] = {}
        self.blocked: set[int] = set()
        self.progress = ConsumerProgress("me", POLICY)
        self.progress.open(PARTITION_ID, Checkpoint())

    @rule(count=st.integers(1, 5), again=st.integers(0, 2))
    def arrive(self, count: int, again: int) -> None:
        """Sometimes the broker sends messages twice."""
        self.progress.fetched(
            PARTITION_ID, [record(offset) for offset in range(max(0, self.end - again), self.end + count)]
        )
        self.end += count

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        for delivery in self.progress.take(count, self.now_s):
            assert delivery.offset not in self.out and delivery.offset not in self.resolved
            assert delivery.attempt == self.failures.get(delivery.offset, 0) + 1
            blockers = {blocker for blocker in self.blocked if key_of(blocker) == delivery.key}
            assert all(blocker >= delivery.offset for blocker in blockers), "overtook a failed one of its key"
            self.out[delivery.offset] = delivery

    @rule(count=st.integers(1, 4))
    def take_and_give_back(self, count: int) -> None:
        taken = self.progress.take(count, self.now_s)
        self.progress.take_back(taken, self.now_s)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        delivery = self.out.pop(data.draw(st.sampled_from(sorted(self.out))))
        self.progress.done(delivery)
        self.resolved.add(delivery.offset)
        self.blocked.discard(delivery.offset)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), retryable=st.booleans())
    def fail(self, data: st.DataObject, retryable: bool) -> None:
        delivery = self.out.pop(data.draw(st.sampled_from(sorted(self.out))))
        error = Unavailable("cannot") if retryable else BadInput("cannot")
        self.progress.fail(delivery, error, self.now_s)
        self.failures[delivery.offset] = self.failures.get(delivery.offset, 0) + 1
        self.blocked.add(delivery.offset)
        poisoned = not retryable or self.failures[delivery.offset] >= MAX_ATTEMPTS
        assert (delivery.offset in {each.record.offset for each in self.progress.poisoned()}) == poisoned

    @rule()
    def bury(self) -> None:
        for poisoned in self.progress.poisoned():
            assert poisoned.attempts == self.failures[poisoned.record.offset] <= MAX_ATTEMPTS
            self.progress.dead_lettered(poisoned.record)
            self.resolved.add(poisoned.record.offset)
            self.blocked.discard(poisoned.record.offset)

    @rule(seconds=st.floats(0.1, 5.0))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @invariant()
    def the_commit_is_the_contiguous_prefix(self) -> None:
        prefix = next(offset for offset in range(self.end + 1) if offset not in self.resolved)
        assert self.progress[PARTITION_ID].committable() == prefix
        assert self.progress[PARTITION_ID].final_checkpoint().committed == prefix
        checkpoint = self.progress[PARTITION_ID].checkpoint(only_one_out=False)
        assert checkpoint.committed == prefix <= checkpoint.handed
        assert all(offset < checkpoint.handed for offset in self.out)

    def teardown(self) -> None:
        """Whatever happened, everything can be brought to an end."""
        for _ in range(10 * (self.end + 1) * MAX_ATTEMPTS):
            for delivery in list(self.out.values()):
                self.progress.done(self.out.pop(delivery.offset))
                self.blocked.discard(delivery.offset)
                self.resolved.add(delivery.offset)
            self.bury()
            self.now_s += 10.0
            self.take(4)
        assert len(self.resolved) == self.end


TestOnePartition = OnePartition.TestCase
TestOnePartition.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_failed_message_holds_back_its_own_key_only() -> None:
    progress = opened(count=6)
    first, second = progress.take(2, 0.0)
    progress.fail(first, Unavailable("cannot"), 0.0)
    progress.done(second)
    assert offsets(progress.take(6, 0.0)) == [3, 5]
    # After the pause, and then alone of its key.
    assert offsets(progress.take(6, 10.0)) == [0]
    assert progress.take(6, 10.0) == []


def test_partitions_take_turns() -> None:
    progress = opened(count=10, partitions=3)
    assert sorted({delivery.partition for delivery in progress.take(3, 0.0)}) == [0, 1, 2]


def test_an_answer_for_a_dropped_partition_is_ignored() -> None:
    progress = opened()
    (delivery,) = progress.take(1, 0.0)
    progress.drop(PARTITION_ID)
    progress.done(delivery)
    progress.open(PARTITION_ID, Checkpoint())
    progress.done(delivery)
    assert progress[PARTITION_ID].committable() == 0


def test_an_idle_partition_is_not_saved_for_a_new_owner() -> None:
    progress = opened(Checkpoint(5, 5, 0, False, "other"), count=0)
    assert progress.unsaved() == {}


def test_one_death_over_several_is_nobodys_fault_yet() -> None:
    progress = opened(Checkpoint(0, 3, 0, False, "dead"))
    assert offsets(progress.take(3, 0.0)) == [0, 1, 2]


def test_after_two_deaths_messages_go_out_alone_until_the_suspects_are_passed() -> None:
    progress = opened(Checkpoint(0, 2, 1, False, "dead"), count=4)
    (first,) = progress.take(4, 0.0)
    assert progress.take(4, 0.0) == []
    assert progress.unsaved()[PARTITION_ID] == Checkpoint(0, 2, 2, True, "me")
    progress.done(first)
    (second,) = progress.take(4, 0.0)
    assert progress.unsaved()[PARTITION_ID] == Checkpoint(1, 2, 0, True, "me")
    progress.done(second)
    assert offsets(progress.take(4, 0.0)) == [2, 3]


def test_suspects_of_two_partitions_are_not_out_together() -> None:
    progress = opened(Checkpoint(0, 1, 1, False, "dead"), count=1, partitions=2)
    assert len(progress.take(2, 0.0)) == 1
    assert progress.take(2, 0.0) == []


def test_a_suspect_waits_until_nothing_else_is_out() -> None:
    progress = opened(count=1)
    (other,) = progress.take(1, 0.0)
    progress.open((TOPIC, 1), Checkpoint(0, 1, 1, False, "dead"))
    progress.fetched((TOPIC, 1), [record(0, 1)])
    assert progress.take(1, 0.0) == []
    progress.done(other)
    assert [delivery.partition for delivery in progress.take(1, 0.0)] == [1]


def test_the_last_death_allowed_dooms_the_message_that_was_alone() -> None:
    progress = opened(Checkpoint(0, 1, MAX_ATTEMPTS - 1, True, "dead"))
    (poisoned,) = progress.poisoned()
    assert (poisoned.record.offset, poisoned.attempts, poisoned.code) == (0, MAX_ATTEMPTS, "worker_died")
    assert progress.take(3, 0.0) == []
    progress.dead_lettered(poisoned.record)
    assert offsets(progress.take(3, 0.0)) == [1, 2]


def test_deaths_beside_others_never_doom() -> None:
    checkpoint = Checkpoint(0, 2, 0, False, "dead")
    for _ in range(20):
        progress = opened(checkpoint)
        assert progress.poisoned() == []
        checkpoint = progress[PARTITION_ID].checkpoint(only_one_out=False)
        checkpoint = Checkpoint(checkpoint.committed, checkpoint.handed, checkpoint.attempts, False, "dead")


def test_who_comes_back_did_not_die() -> None:
    progress = opened(Checkpoint(0, 1, MAX_ATTEMPTS - 1, True, "me"), member="me")
    assert progress.poisoned() == []
    assert progress.take(1, 0.0)[0].attempt == MAX_ATTEMPTS


def test_a_farewell_blames_nobody_and_keeps_what_failed() -> None:
    progress = opened()
    (delivery,) = progress.take(1, 0.0)
    progress.fail(delivery, Unavailable("cannot"), 0.0)
    final_checkpoint = progress[PARTITION_ID].final_checkpoint()
    assert final_checkpoint == Checkpoint(0, 0, 1, False, "me")
    assert opened(final_checkpoint, member="next").take(3, 0.0)[0].attempt == 2


@given(st.integers(0, 5), st.integers(0, 50), st.integers(1, 5))
def test_a_killer_is_doomed_after_bounded_deaths_and_its_neighbours_never(before: int, after: int, batch: int) -> None:
    """Workers die over one message, wherever it is and however many are taken at once."""
    killer, count = before, before + 1 + after
    checkpoint, handled, deaths, poisoned = Checkpoint(), set[int](), 0, list[int]()
    while checkpoint.committed < count:
        progress = PartitionWorker(checkpoint, f"worker {deaths}", count)
        died = progress.work(killer, batch, handled, poisoned)
        checkpoint = progress.mark
        deaths += died
        assert deaths <= MAX_ATTEMPTS + 2
    assert poisoned == [killer]
    assert handled == set(range(count)) - {killer}


class PartitionWorker:
    """A worker that saves its checkpoints as the buses do, and dies over one message."""

    def __init__(self, found: Checkpoint, member: str, count: int) -> None:
        self.progress = ConsumerProgress(member, POLICY)
        self.progress.open(PARTITION_ID, found)
        self.progress.fetched(PARTITION_ID, [record(offset) for offset in range(found.committed, count)])
        self.mark = found

    def work(self, killer: int, batch: int, handled: set[int], poisoned: list[int]) -> bool:
        while True:
            for each in self.progress.poisoned():
                poisoned.append(each.record.offset)
                self.progress.dead_lettered(each.record)
            taken = self.progress.take(batch, 0.0)
            self._save()
            if not taken:
                return False
            for delivery in taken:
                if delivery.offset == killer:
                    return True
                handled.add(delivery.offset)
                self.progress.done(delivery)
            self._save()

    def _save(self) -> None:
        checkpoints = self.progress.unsaved()
        self.mark = checkpoints.get(PARTITION_ID, self.mark)
        self.progress.saved(checkpoints)


def test_answers_that_nobody_waits_for_change_nothing() -> None:
    partition = PartitionProgress(Checkpoint(), "me", POLICY)
    partition.done(7)
    partition.fail(7, "bug", "late", retryable=False, now_s=0.0)
    assert partition.poisoned() == [] and partition.committable() == 0
