import pytest

from lakerunner.model.errors import BadInput, LakeError, Unavailable
from lakerunner.runtime.retry import Backoff, retrying

QUICK = Backoff(0.0, 0.0)


class Flaky:
    def __init__(self, *errors: LakeError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_passing_errors_are_waited_out() -> None:
    call = Flaky(Unavailable("down"), Unavailable("down"))
    assert retrying(call, attempts=3, backoff=QUICK) == "done"
    assert call.calls == 3


def test_attempts_are_bounded() -> None:
    call = Flaky(*[Unavailable("down")] * 5)
    with pytest.raises(Unavailable):
        retrying(call, attempts=3, backoff=QUICK)
    assert call.calls == 3


def test_errors_that_stay_are_passed_on_at_once() -> None:
    call = Flaky(BadInput("wrong"))
    with pytest.raises(BadInput):
        retrying(call, attempts=3, backoff=QUICK)
    assert call.calls == 1


def test_the_deadline_counts_the_wait_to_come() -> None:
    call = Flaky(*[Unavailable("down")] * 9)
    with pytest.raises(Unavailable):
        retrying(call, attempts=9, backoff=Backoff(5.0, 5.0), deadline_s=0.0)
    assert call.calls == 1


def test_each_retry_is_told() -> None:
    told: list[int] = []
    call = Flaky(Unavailable("a"), Unavailable("b"))
    retrying(call, attempts=5, backoff=QUICK, on_retry=lambda _, failures: told.append(failures))
    assert told == [1, 2]


def test_waits_double_up_to_the_cap_and_are_spread() -> None:
    backoff = Backoff(base_s=1.0, cap_s=10.0)
    assert [backoff.ceiling_s(n) for n in (1, 2, 3, 4, 5, 5_000)] == [1, 2, 4, 8, 10, 10]
    delays = {backoff.delay_s(3) for _ in range(50)}
    assert len(delays) > 10
    assert all(0 <= delay <= 4 for delay in delays)
