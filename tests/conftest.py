"""Fixtures that every room may use. Components live in tests/components."""

import pytest

from tests.components.fixtures import *  # noqa: F403  (the fixtures of real components)
from tests.components.process import free_port as find_free_port


@pytest.fixture
def free_port() -> int:
    return find_free_port()
