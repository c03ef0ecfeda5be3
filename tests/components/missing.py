"""What a test does about something that it needs and this machine lacks."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(message: str) -> NoReturn:
    """Skip the test on a developer's machine. In CI everything has to be there, so it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
