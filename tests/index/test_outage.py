"""An index that is down is asked by one at a time; the others are told at once."""

from __future__ import annotations

import time

import pytest

from lakerunner.index.database import Database
from lakerunner.index.outage import Outage
from lakerunner.model.errors import Unavailable


def test_one_asks_and_the_others_are_told() -> None:
    now = [0.0]
    outage = Outage(5.0, lambda: now[0])
    outage.enter()
    outage.met(Unavailable("cannot reach the index", hint="start it"))
    with pytest.raises(Unavailable, match="cannot reach the index; start it"):
        outage.enter()
    now[0] = 1.5
    outage.enter()
    with pytest.raises(Unavailable):
        outage.enter()  # Somebody asks already.
    now[0] = 8.0
    outage.enter()  # And never came back.
    outage.over()
    outage.enter()
    outage.enter()


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
