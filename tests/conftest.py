"""Fixtures that every room may use. Components live in tests/components."""

import gc
import os
from collections import Counter
from collections.abc import Generator

import hypothesis
import pytest

from tests.components.fixtures import *  # noqa: F403  (the fixtures of real components)
from tests.components.process import free_port as find_free_port
from tests.examples import examples

# Machines are shared: how long an example took says nothing about it. A failure prints what reproduces it.
hypothesis.settings.register_profile("lakerunner", deadline=None, print_blob=True, max_examples=examples(100))
hypothesis.settings.load_profile("lakerunner")

# No machine loses its power in a test, so writing need not wait for disks, which takes milliseconds each time.
os.fsync = lambda descriptor: None

#: By fixture, a server that takes seconds to start. All tests of one of them run in one process of pytest-xdist.
_SHARED = {"spark": "spark", "kafka_broker": "kafka", "make_bus": "kafka"}
#: A slow test counts as this many others: a long test that begins last leaves the other processes idle.
_SLOW_WEIGHT = 100


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, nor look later at what stays: that took 4 of 9 s of collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# First, because pytest-xdist reads the groups in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one process, for its fixtures; and begin with those that take longest."""
    groups = {item: _group(item) for item in items}
    weights: Counter[str] = Counter()
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
        weights[group] += _SLOW_WEIGHT if group in _SHARED.values() or item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: -weights[groups[item]])


def _group(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    return next((server for name, server in _SHARED.items() if name in fixtures), item.nodeid.partition("::")[0])


@pytest.fixture
def free_port() -> int:
    return find_free_port()
