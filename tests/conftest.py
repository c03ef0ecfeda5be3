"""Fixtures that every room may use. Components live in tests/components."""

import hypothesis
import pytest

from tests.components.fixtures import *  # noqa: F403  (the fixtures of real components)
from tests.components.process import free_port as find_free_port

# Machines are shared: how long an example took says nothing about it. A failure prints what reproduces it.
hypothesis.settings.register_profile("lakerunner", deadline=None, print_blob=True)
hypothesis.settings.load_profile("lakerunner")


@pytest.fixture
def free_port() -> int:
    return find_free_port()
