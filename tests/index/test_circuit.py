"""While the index is down, one caller at a time tries it and the others fail at once."""

from __future__ import annotations

import time

import pytest

from lakerunner.index.circuit import IndexCircuit
from lakerunner.index.database import Database
from lakerunner.model.errors import Unavailable


def test_one_caller_tries_and_the_others_fail_at_once() -> None:
    now = [0.0]
    circuit = IndexCircuit(5.0, lambda: now[0])
    circuit.check()
    circuit.failed(Unavailable("cannot reach the index", hint="start it"))
    with pytest.raises(Unavailable, match="cannot reach the index; start it"):
        circuit.check()
    now[0] = 1.5
    circuit.check()
    with pytest.raises(Unavailable):
        circuit.check()  # Another caller is trying.
    now[0] = 8.0
    circuit.check()  # That caller never reported back.
    circuit.succeeded()
    circuit.check()
    circuit.check()


def test_a_database_that_is_down_is_waited_for_once() -> None:
    database = Database("postgresql://127.0.0.1:1/gone", connect_timeout_s=1.0, fail_fast=True)
    with pytest.raises(Unavailable):
        database.ping()
    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(Unavailable, match="cannot reach the index"):
            database.ping()
    assert time.monotonic() - began < 0.5
    database.close()
