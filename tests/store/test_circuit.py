"""The circuit breaker opens after failures in a row, pauses calls, and lets one call probe."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from lakerunner.runtime.metrics import STORE_CIRCUIT_OPEN
from lakerunner.store.circuit import Circuit


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def circuit(clock: _Clock) -> Circuit:
    return Circuit(failures=3, pause_s=5.0, clock=clock)


def _fail(circuit: Circuit, times: int) -> None:
    for _ in range(times):
        assert circuit.admit()
        circuit.failed()


def test_it_opens_after_failures_in_a_row(circuit: Circuit) -> None:
    _fail(circuit, 2)
    assert circuit.admit()
    circuit.succeeded()
    _fail(circuit, 2)
    assert not circuit.is_open
    _fail(circuit, 1)
    assert circuit.is_open
    assert not circuit.admit()


def test_after_the_pause_one_may_try(circuit: Circuit, clock: _Clock) -> None:
    _fail(circuit, 3)
    clock.now = 4.9
    assert not circuit.admit()
    clock.now = 5.0
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: circuit.admit(), range(50))).count(True) == 1
    circuit.succeeded()
    assert not circuit.is_open
    assert circuit.admit()
    assert circuit.admit()


def test_a_failed_try_begins_another_pause(circuit: Circuit, clock: _Clock) -> None:
    _fail(circuit, 3)
    clock.now = 6.0
    _fail(circuit, 1)
    clock.now = 10.9
    assert not circuit.admit()
    clock.now = 11.0
    assert circuit.admit()


def test_a_late_failure_does_not_prolong_the_pause(circuit: Circuit, clock: _Clock) -> None:
    _fail(circuit, 3)
    clock.now = 3.0
    circuit.failed()
    clock.now = 4.9
    assert not circuit.admit()
    clock.now = 5.0
    assert circuit.admit()


def test_a_refusal_opens_it_at_once(circuit: Circuit, clock: _Clock) -> None:
    assert circuit.admit()
    circuit.trip()
    assert circuit.is_open and not circuit.admit()
    clock.now = 5.0
    assert circuit.admit()
    circuit.trip()
    clock.now = 9.9
    assert not circuit.admit()


def test_an_interrupted_try_leaves_room_for_the_next(circuit: Circuit, clock: _Clock) -> None:
    _fail(circuit, 3)
    clock.now = 5.0
    assert circuit.admit()
    circuit.abandoned()
    assert circuit.admit()


def test_it_is_shown_in_the_metrics(circuit: Circuit) -> None:
    _fail(circuit, 3)
    assert STORE_CIRCUIT_OPEN._value.get() == 1
    circuit.succeeded()
    assert STORE_CIRCUIT_OPEN._value.get() == 0
